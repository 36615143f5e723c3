package lockson.peer;

import java.time.Duration;
import org.redisson.api.RSemaphore;

/** The verbs of a semaphore. */
final class SemaphoreVerbs {
    private final Handles handles;

    SemaphoreVerbs(Handles handles) {
        this.handles = handles;
    }

    void register(Verbs verbs) {
        Kind.Family family = Kind.Family.SEMAPHORE;
        verbs.add(family, "acquire", "permits", (request, answer) -> {
            RSemaphore semaphore = semaphore(request);
            int permits = request.smallNumber("permits", 1);
            answer.time(() -> semaphore.acquire(permits));
        });
        verbs.add(family, "try_acquire", "permits wait_ms", this::tryAcquire);
        verbs.add(family, "release", "permits", (request, answer) -> {
            RSemaphore semaphore = semaphore(request);
            int permits = request.smallNumber("permits", 1);
            answer.time(() -> semaphore.release(permits));
        });
        verbs.add(family, "release_if_exists", "permits", (request, answer) -> {
            RSemaphore semaphore = semaphore(request);
            int permits = request.smallNumber("permits", 1);
            answer.put("released", answer.time(() -> NewerApi.releaseIfExists(semaphore, permits)));
        });
        verbs.add(family, "drain", "", (request, answer) ->
                answer.put("permits", answer.time(semaphore(request)::drainPermits)));
        verbs.add(family, "available", "", (request, answer) ->
                answer.put("permits", answer.time(semaphore(request)::availablePermits)));
        verbs.add(family, "try_set_permits", "permits ttl_ms", this::trySetPermits);
        verbs.add(family, "add_permits", "permits", (request, answer) -> {
            RSemaphore semaphore = semaphore(request);
            int permits = request.smallNumber("permits");
            answer.time(() -> semaphore.addPermits(permits));
        });
        verbs.add(family, "ttl", "", (request, answer) ->
                answer.put("ttl_ms", answer.time(semaphore(request)::remainTimeToLive)));
        KeyVerbs.register(verbs, family, this::semaphore);
    }

    private void tryAcquire(Request request, Answer answer) throws Exception {
        RSemaphore semaphore = semaphore(request);
        int permits = request.smallNumber("permits", 1);
        answer.put("acquired", answer.time(() -> request.has("wait_ms")
                ? semaphore.tryAcquire(permits, Duration.ofMillis(request.number("wait_ms")))
                : semaphore.tryAcquire(permits)));
    }

    private void trySetPermits(Request request, Answer answer) throws Exception {
        RSemaphore semaphore = semaphore(request);
        int permits = request.smallNumber("permits");
        answer.put("set", answer.time(() -> request.has("ttl_ms")
                ? semaphore.trySetPermits(permits, Duration.ofMillis(request.number("ttl_ms")))
                : semaphore.trySetPermits(permits)));
    }

    private RSemaphore semaphore(Request request) {
        return handles.semaphore(request, request.text("name"));
    }
}
