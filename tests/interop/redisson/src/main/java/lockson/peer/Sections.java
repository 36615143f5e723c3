package lockson.peer;

import java.time.Duration;
import java.util.List;
import java.util.OptionalLong;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;

/** Makes the sections of a load loop. */
final class Sections {
    private static final long NO_LEASE = -1;

    private final Handles handles;

    Sections(Handles handles) {
        this.handles = handles;
    }

    /** One section for each name; multi-locks are one section with all names. */
    List<Section> of(Request request) {
        Kind kind = Kind.named(request.text("kind"));
        List<String> names = request.texts("names");
        if (kind.isComposite()) {
            return List.of(lockSection(names, handles.lock(request), request));
        } else if (kind == Kind.FASTER_MULTI) {
            String group = request.text("name");
            List<String> members = names.stream().map(value -> group + ":" + value).toList();
            return List.of(lockSection(members, handles.lock(request), request));
        }
        return names.stream().map(name -> single(kind, name, request)).toList();
    }

    private Section single(Kind kind, String name, Request request) {
        return switch (kind.family()) {
            case LOCK -> lockSection(List.of(name), handles.lock(request, kind, name), request);
            case SEMAPHORE -> semaphoreSection(name, handles.semaphore(request, name), request);
            case PERMITS -> permitSection(name, handles.permits(request, name), request);
            case LATCH -> throw new UnsupportedOperationException("nobody is inside a latch");
        };
    }

    private static Section lockSection(List<String> names, RLock lock, Request request) {
        OptionalLong wait = request.optionalNumber("wait_ms");
        OptionalLong lease = request.optionalNumber("lease_ms");
        return new Section() {
            @Override
            public List<String> names() {
                return names;
            }

            @Override
            public boolean enter() throws InterruptedException {
                if (wait.isPresent()) {
                    return Acquiring.tryLock(lock, wait, lease);
                }
                Acquiring.lock(lock, lease, true);
                return true;
            }

            @Override
            public void leave() {
                lock.unlock();
            }
        };
    }

    private static Section semaphoreSection(String name, RSemaphore semaphore, Request request) {
        OptionalLong wait = request.optionalNumber("wait_ms");
        return new Section() {
            @Override
            public List<String> names() {
                return List.of(name);
            }

            @Override
            public boolean enter() throws InterruptedException {
                if (wait.isPresent()) {
                    return semaphore.tryAcquire(Duration.ofMillis(wait.getAsLong()));
                }
                semaphore.acquire();
                return true;
            }

            @Override
            public void leave() {
                semaphore.release();
            }
        };
    }

    private static Section permitSection(String name, RPermitExpirableSemaphore semaphore, Request request) {
        OptionalLong wait = request.optionalNumber("wait_ms");
        long lease = request.number("lease_ms", NO_LEASE);
        return new Section() {
            private String permit;

            @Override
            public List<String> names() {
                return List.of(name);
            }

            @Override
            public boolean enter() throws InterruptedException {
                permit = wait.isPresent()
                        ? semaphore.tryAcquire(wait.getAsLong(), lease, TimeUnit.MILLISECONDS)
                        : semaphore.acquire(lease, TimeUnit.MILLISECONDS);
                return permit != null;
            }

            @Override
            public void leave() {
                semaphore.release(permit);
            }
        };
    }
}
