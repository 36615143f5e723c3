package lockson.peer;

import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/**
 * One Redisson client and the client's objects.
 *
 * <p>Redisson's lock objects remember the last lease, so the same object must serve a lock and its unlock.
 */
final class Client {
    private static final int SHUTDOWN_SECONDS = 2;

    private final RedissonClient redisson;
    private final Map<List<String>, Object> handles = new ConcurrentHashMap<>();

    Client(RedissonClient redisson) {
        this.redisson = redisson;
    }

    String id() {
        return redisson.getId();
    }

    /** A lock that is not made of other locks. {@code values} matter to {@code faster_multi} only. */
    RLock lock(Kind kind, String name, List<String> values, String handle) {
        return switch (kind) {
            case PLAIN -> kept(kind, name, handle, () -> redisson.getLock(name));
            case FAIR -> kept(kind, name, handle, () -> redisson.getFairLock(name));
            case SPIN -> kept(kind, name, handle, () -> redisson.getSpinLock(name));
            case NON_REENTRANT -> kept(kind, name, handle, () -> NewerApi.nonReentrantLock(redisson, name));
            case NON_REENTRANT_FAIR -> kept(kind, name, handle, () -> NewerApi.nonReentrantFairLock(redisson, name));
            case FENCED -> kept(kind, name, handle, () -> redisson.getFencedLock(name));
            case READ -> kept(kind, name, handle, () -> redisson.getReadWriteLock(name).readLock());
            case WRITE -> kept(kind, name, handle, () -> redisson.getReadWriteLock(name).writeLock());
            case FASTER_MULTI -> kept(kind, name + ' ' + values, handle,
                    () -> redisson.getMultiLock(name, List.<Object>copyOf(values)));
            default -> throw new BadInput(kind.protocolName() + " is not a single lock");
        };
    }

    RLock multi(List<RLock> parts) {
        return redisson.getMultiLock(parts.toArray(RLock[]::new));
    }

    @SuppressWarnings("deprecation") // Redisson deprecates RedLock, but users still have it
    RLock red(List<RLock> parts) {
        return redisson.getRedLock(parts.toArray(RLock[]::new));
    }

    RSemaphore semaphore(String name, String handle) {
        return kept(Kind.SEMAPHORE, name, handle, () -> redisson.getSemaphore(name));
    }

    RPermitExpirableSemaphore permits(String name, String handle) {
        return kept(Kind.PERMITS, name, handle, () -> redisson.getPermitExpirableSemaphore(name));
    }

    RCountDownLatch latch(String name, String handle) {
        return kept(Kind.LATCH, name, handle, () -> redisson.getCountDownLatch(name));
    }

    void close() {
        redisson.shutdown(0, SHUTDOWN_SECONDS, TimeUnit.SECONDS);
    }

    @SuppressWarnings("unchecked") // the kind in the key determines the type
    private <T> T kept(Kind kind, String name, String handle, Supplier<T> create) {
        return (T) handles.computeIfAbsent(List.of(kind.name(), name, handle), key -> create.get());
    }
}
