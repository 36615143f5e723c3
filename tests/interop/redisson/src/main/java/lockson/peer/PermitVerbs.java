package lockson.peer;

import java.util.List;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RPermitExpirableSemaphore;

/**
 * The verbs of a semaphore whose permits have ids and may expire.
 *
 * <p>Redisson has calls for one permit and calls for a list; {@code permits} and {@code ids} choose the list.
 */
final class PermitVerbs {
    private static final long NO_LEASE = -1;

    private final Handles handles;

    PermitVerbs(Handles handles) {
        this.handles = handles;
    }

    void register(Verbs verbs) {
        Kind.Family family = Kind.Family.PERMITS;
        verbs.add(family, "acquire", "permits lease_ms", (request, answer) -> {
            RPermitExpirableSemaphore semaphore = semaphore(request);
            putGrant(answer, answer.time(() -> acquire(semaphore, request)));
        });
        verbs.add(family, "try_acquire", "permits wait_ms lease_ms", (request, answer) -> {
            RPermitExpirableSemaphore semaphore = semaphore(request);
            putGrant(answer, answer.time(() -> tryAcquire(semaphore, request)));
        });
        verbs.add(family, "release", "id ids", this::release);
        verbs.add(family, "try_release", "id ids", this::tryRelease);
        verbs.add(family, "available", "", (request, answer) ->
                answer.put("permits", answer.time(semaphore(request)::availablePermits)));
        verbs.add(family, "permits", "", (request, answer) ->
                answer.put("permits", answer.time(semaphore(request)::getPermits)));
        verbs.add(family, "acquired", "", (request, answer) ->
                answer.put("permits", answer.time(semaphore(request)::acquiredPermits)));
        verbs.add(family, "try_set_permits", "permits", (request, answer) -> {
            RPermitExpirableSemaphore semaphore = semaphore(request);
            int permits = request.smallNumber("permits");
            answer.put("set", answer.time(() -> semaphore.trySetPermits(permits)));
        });
        verbs.add(family, "set_permits", "permits", (request, answer) -> {
            RPermitExpirableSemaphore semaphore = semaphore(request);
            int permits = request.smallNumber("permits");
            answer.time(() -> semaphore.setPermits(permits));
        });
        verbs.add(family, "add_permits", "permits", (request, answer) -> {
            RPermitExpirableSemaphore semaphore = semaphore(request);
            int permits = request.smallNumber("permits");
            answer.time(() -> semaphore.addPermits(permits));
        });
        verbs.add(family, "update_lease", "id lease_ms", (request, answer) -> {
            RPermitExpirableSemaphore semaphore = semaphore(request);
            String id = request.text("id");
            long lease = request.number("lease_ms");
            answer.put("updated", answer.time(() -> semaphore.updateLeaseTime(id, lease, TimeUnit.MILLISECONDS)));
        });
        verbs.add(family, "lease", "id", (request, answer) -> {
            RPermitExpirableSemaphore semaphore = semaphore(request);
            String id = request.text("id");
            answer.put("lease_ms", answer.time(() -> semaphore.getLeaseTime(id)));
        });
        verbs.add(family, "ttl", "", (request, answer) ->
                answer.put("ttl_ms", answer.time(semaphore(request)::remainTimeToLive)));
        KeyVerbs.register(verbs, family, this::semaphore);
    }

    private static List<String> acquire(RPermitExpirableSemaphore semaphore, Request request)
            throws InterruptedException {
        if (request.has("permits")) {
            int permits = request.smallNumber("permits");
            return request.has("lease_ms")
                    ? semaphore.acquire(permits, request.number("lease_ms"), TimeUnit.MILLISECONDS)
                    : semaphore.acquire(permits);
        }
        return one(request.has("lease_ms")
                ? semaphore.acquire(request.number("lease_ms"), TimeUnit.MILLISECONDS)
                : semaphore.acquire());
    }

    private static List<String> tryAcquire(RPermitExpirableSemaphore semaphore, Request request)
            throws InterruptedException {
        if (!request.has("wait_ms")) {
            if (request.has("lease_ms")) {
                throw new BadInput("lease_ms needs wait_ms");
            }
            return request.has("permits")
                    ? semaphore.tryAcquire(request.smallNumber("permits")) : one(semaphore.tryAcquire());
        }
        long wait = request.number("wait_ms");
        long lease = request.number("lease_ms", NO_LEASE);
        return request.has("permits")
                ? semaphore.tryAcquire(request.smallNumber("permits"), wait, lease, TimeUnit.MILLISECONDS)
                : one(semaphore.tryAcquire(wait, lease, TimeUnit.MILLISECONDS));
    }

    private void release(Request request, Answer answer) throws Exception {
        RPermitExpirableSemaphore semaphore = semaphore(request);
        if (isList(request)) {
            List<String> ids = request.texts("ids");
            answer.time(() -> semaphore.release(ids));
        } else {
            String id = request.text("id");
            answer.time(() -> semaphore.release(id));
        }
    }

    private void tryRelease(Request request, Answer answer) throws Exception {
        RPermitExpirableSemaphore semaphore = semaphore(request);
        if (isList(request)) {
            List<String> ids = request.texts("ids");
            answer.put("released", answer.time(() -> semaphore.tryRelease(ids)));
        } else {
            String id = request.text("id");
            answer.put("released", answer.time(() -> semaphore.tryRelease(id)) ? 1 : 0);
        }
    }

    private static boolean isList(Request request) {
        if (request.has("id") == request.has("ids")) {
            throw new BadInput(request.verb() + " needs either id or ids");
        }
        return request.has("ids");
    }

    private static void putGrant(Answer answer, List<String> ids) {
        answer.put("acquired", !ids.isEmpty());
        if (!ids.isEmpty()) {
            answer.putAll("ids", ids);
        }
    }

    /** Redisson's calls for one permit return null for "none". */
    private static List<String> one(String id) {
        return id == null ? List.of() : List.of(id);
    }

    private RPermitExpirableSemaphore semaphore(Request request) {
        return handles.permits(request, request.text("name"));
    }
}
