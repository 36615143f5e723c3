package lockson.peer;

import java.util.concurrent.TimeUnit;
import org.redisson.api.RExpirable;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RObject;

/** The verbs of every lock. */
final class LockVerbs {
    /** Redisson's value for a lease that is renewed while this process lives. */
    private static final long NO_LEASE = -1;

    private final Handles handles;

    LockVerbs(Handles handles) {
        this.handles = handles;
    }

    void register(Verbs verbs) {
        Kind.Family family = Kind.Family.LOCK;
        verbs.add(family, "lock", "lease_ms interruptible and_token", this::lock);
        verbs.add(family, "try_lock", "wait_ms lease_ms and_token", this::tryLock);
        verbs.add(family, "unlock", "", (request, answer) -> answer.time(handles.lock(request)::unlock));
        verbs.add(family, "force_unlock", "", (request, answer) ->
                answer.put("unlocked", answer.time(handles.lock(request)::forceUnlock)));
        verbs.add(family, "is_locked", "", (request, answer) ->
                answer.put("locked", answer.time(handles.lock(request)::isLocked)));
        verbs.add(family, "is_held", "", (request, answer) ->
                answer.put("held", answer.time(handles.lock(request)::isHeldByCurrentThread)));
        verbs.add(family, "hold_count", "", (request, answer) ->
                answer.put("count", answer.time(handles.lock(request)::getHoldCount)));
        verbs.add(family, "ttl", "", (request, answer) ->
                answer.put("ttl_ms", answer.time(handles.lock(request)::remainTimeToLive)));
        verbs.add(family, "token", "", (request, answer) ->
                answer.put("token", answer.time(fenced(handles.lock(request))::getToken)));
        KeyVerbs.register(verbs, family, request -> (RObject) as(RExpirable.class, handles.lock(request)));
    }

    private void lock(Request request, Answer answer) throws Exception {
        RLock lock = handles.lock(request);
        long lease = request.number("lease_ms", NO_LEASE);
        if (request.flag("and_token")) {
            RFencedLock fenced = fenced(lock);
            Long token = answer.time(() -> request.has("lease_ms")
                    ? fenced.lockAndGetToken(lease, TimeUnit.MILLISECONDS) : fenced.lockAndGetToken());
            answer.put("acquired", true).put("token", token);
            return;
        }
        answer.time(() -> Acquiring.lock(lock, request.optionalNumber("lease_ms"), request.flag("interruptible")));
        putGrant(answer, lock, true);
    }

    private void tryLock(Request request, Answer answer) throws Exception {
        RLock lock = handles.lock(request);
        if (request.has("lease_ms") && !request.has("wait_ms")) {
            throw new BadInput("lease_ms needs wait_ms");
        }
        if (request.flag("and_token")) {
            RFencedLock fenced = fenced(lock);
            Long token = answer.time(() -> tryLockAndGetToken(fenced, request));
            answer.put("acquired", token != null);
            if (token != null) {
                answer.put("token", token);
            }
            return;
        }
        putGrant(answer, lock, answer.time(() ->
                Acquiring.tryLock(lock, request.optionalNumber("wait_ms"), request.optionalNumber("lease_ms"))));
    }

    private static Long tryLockAndGetToken(RFencedLock lock, Request request) {
        if (!request.has("wait_ms")) {
            return lock.tryLockAndGetToken();
        }
        long wait = request.number("wait_ms");
        return request.has("lease_ms")
                ? lock.tryLockAndGetToken(wait, request.number("lease_ms"), TimeUnit.MILLISECONDS)
                : lock.tryLockAndGetToken(wait, TimeUnit.MILLISECONDS);
    }

    /** The token cannot change while the lock is held, so a read after t1 is correct. */
    private static void putGrant(Answer answer, RLock lock, boolean acquired) {
        answer.put("acquired", acquired);
        if (acquired && lock instanceof RFencedLock fenced) {
            answer.put("token", fenced.getToken());
        }
    }

    private static RFencedLock fenced(RLock lock) {
        return as(RFencedLock.class, lock);
    }

    private static <T> T as(Class<T> type, RLock lock) {
        if (!type.isInstance(lock)) {
            throw new UnsupportedOperationException("this kind is no " + type.getSimpleName());
        }
        return type.cast(lock);
    }
}
