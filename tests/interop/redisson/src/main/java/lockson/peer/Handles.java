package lockson.peer;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;

/** Finds the object of a request. */
final class Handles {
    private final Clients clients;

    Handles(Clients clients) {
        this.clients = clients;
    }

    RLock lock(Request request) {
        Kind kind = Kind.named(request.text("kind"));
        if (kind.isComposite()) {
            List<RLock> parts = parts(request);
            Client client = clients.of(request);
            return kind == Kind.RED ? client.red(parts) : client.multi(parts);
        }
        List<String> values = kind == Kind.FASTER_MULTI ? request.texts("names") : List.of();
        return clients.of(request).lock(kind, request.text("name"), values, handle(request));
    }

    /** The lock of one of several names, for {@code cycle}. */
    RLock lock(Request request, Kind kind, String name) {
        return clients.of(request).lock(kind, name, List.of(), handle(request));
    }

    RSemaphore semaphore(Request request, String name) {
        return clients.of(request).semaphore(name, handle(request));
    }

    RPermitExpirableSemaphore permits(Request request, String name) {
        return clients.of(request).permits(name, handle(request));
    }

    RCountDownLatch latch(Request request, String name) {
        return clients.of(request).latch(name, handle(request));
    }

    private List<RLock> parts(Request request) {
        List<String> names = request.texts("names");
        List<String> kinds = oneForEach(names, "of", request.texts("of", "plain"));
        List<String> numbers = oneForEach(names, "clients", request.texts("clients", request.text("client", "0")));
        List<RLock> parts = new ArrayList<>();
        for (int i = 0; i < names.size(); i++) {
            Client client = clients.get(Request.smallNumber("clients", numbers.get(i)));
            parts.add(client.lock(Kind.named(kinds.get(i)), names.get(i), List.of(), handle(request)));
        }
        return parts;
    }

    /** A single item applies to all names. */
    private static List<String> oneForEach(List<String> names, String key, List<String> items) {
        if (items.size() == 1) {
            return Collections.nCopies(names.size(), items.get(0));
        }
        if (items.size() != names.size()) {
            throw new BadInput(key + " needs one item, or as many as names has");
        }
        return items;
    }

    private static String handle(Request request) {
        return request.text("handle", "thread:" + request.smallNumber("thread", 0));
    }
}
