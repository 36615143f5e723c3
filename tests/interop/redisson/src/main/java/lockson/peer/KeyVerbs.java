package lockson.peer;

import java.time.Duration;
import java.util.function.Function;
import org.redisson.api.RExpirable;
import org.redisson.api.RObject;

/** The verbs for the Redis keys of an object. */
final class KeyVerbs {
    private KeyVerbs() {
    }

    static void register(Verbs verbs, Kind.Family family, Function<Request, RObject> find) {
        verbs.add(family, "delete", "", (request, answer) -> {
            RObject object = find.apply(request);
            answer.put("deleted", answer.time(object::delete));
        });
        verbs.add(family, "expire", "ttl_ms", (request, answer) -> {
            RExpirable object = expirable(find.apply(request));
            Duration ttl = Duration.ofMillis(request.number("ttl_ms"));
            answer.put("set", answer.time(() -> object.expire(ttl)));
        });
        verbs.add(family, "clear_expire", "", (request, answer) -> {
            RExpirable object = expirable(find.apply(request));
            answer.put("cleared", answer.time(object::clearExpire));
        });
    }

    private static RExpirable expirable(RObject object) {
        if (object instanceof RExpirable expirable) {
            return expirable;
        }
        throw new UnsupportedOperationException("this kind cannot expire");
    }
}
