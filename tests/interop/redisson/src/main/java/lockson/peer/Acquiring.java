package lockson.peer;

import java.util.OptionalLong;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RLock;

/** Picks the overload of Redisson's lock calls that matches the request exactly. */
final class Acquiring {
    private Acquiring() {
    }

    static void lock(RLock lock, OptionalLong leaseMillis, boolean interruptible) throws InterruptedException {
        if (interruptible && leaseMillis.isPresent()) {
            lock.lockInterruptibly(leaseMillis.getAsLong(), TimeUnit.MILLISECONDS);
        } else if (interruptible) {
            lock.lockInterruptibly();
        } else if (leaseMillis.isPresent()) {
            lock.lock(leaseMillis.getAsLong(), TimeUnit.MILLISECONDS);
        } else {
            lock.lock();
        }
        if (Thread.interrupted() && !lock.isHeldByCurrentThread()) {
            throw new InterruptedException("lock() returned without the lock"); // multi-locks do so after an interrupt
        }
    }

    /** Without a wait, makes one attempt by the call without arguments. */
    static boolean tryLock(RLock lock, OptionalLong waitMillis, OptionalLong leaseMillis) throws InterruptedException {
        if (waitMillis.isEmpty()) {
            return lock.tryLock();
        } else if (leaseMillis.isEmpty()) {
            return lock.tryLock(waitMillis.getAsLong(), TimeUnit.MILLISECONDS);
        } else {
            return lock.tryLock(waitMillis.getAsLong(), leaseMillis.getAsLong(), TimeUnit.MILLISECONDS);
        }
    }
}
