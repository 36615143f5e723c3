package lockson.peer;

import java.util.concurrent.TimeUnit;
import org.redisson.api.RCountDownLatch;

/** The verbs of a count-down latch. */
final class LatchVerbs {
    private final Handles handles;

    LatchVerbs(Handles handles) {
        this.handles = handles;
    }

    void register(Verbs verbs) {
        Kind.Family family = Kind.Family.LATCH;
        verbs.add(family, "try_set_count", "count", (request, answer) -> {
            RCountDownLatch latch = latch(request);
            long count = request.number("count");
            answer.put("set", answer.time(() -> latch.trySetCount(count)));
        });
        verbs.add(family, "count_down", "", (request, answer) -> answer.time(latch(request)::countDown));
        verbs.add(family, "await", "wait_ms", this::await);
        verbs.add(family, "get_count", "", (request, answer) ->
                answer.put("count", answer.time(latch(request)::getCount)));
        KeyVerbs.register(verbs, family, this::latch);
    }

    private void await(Request request, Answer answer) throws Exception {
        RCountDownLatch latch = latch(request);
        boolean open = true;
        if (request.has("wait_ms")) {
            long wait = request.number("wait_ms");
            open = answer.time(() -> latch.await(wait, TimeUnit.MILLISECONDS));
        } else {
            answer.time(() -> latch.await());
        }
        answer.put("open", open);
    }

    private RCountDownLatch latch(Request request) {
        return handles.latch(request, request.text("name"));
    }
}
