package lockson.peer;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.SplittableRandom;
import java.util.function.IntUnaryOperator;

/** The verb {@code cycle}: reads the settings of the load loop and returns the outcome. */
final class CycleVerb {
    private static final Set<String> KEYS = Set.of("kind", "name", "names", "of", "clients", "handle",
            "duration_ms", "order", "seed", "wait_ms", "lease_ms", "hold_us", "pause_us", "path", "witness_dir",
            "places");

    private final Sections sections;

    CycleVerb(Handles handles) {
        sections = new Sections(handles);
    }

    void register(Verbs verbs) {
        verbs.add("cycle", KEYS, this::cycle);
    }

    private void cycle(Request request, Answer answer) throws Exception {
        List<Section> choices = sections.of(request);
        IntUnaryOperator order = order(request);
        try (GrantLog grants = grantLog(request); Witness witness = witness(request)) {
            Cycle cycle = new Cycle(choices, order, witness, grants);
            answer.time(() -> cycle.run(
                    request.number("duration_ms"), request.number("hold_us", 0), request.number("pause_us", 0)));
            cycle.put(answer);
            answer.put("violations", witness.violations()).put("takeovers", witness.takeovers());
        }
    }

    private static IntUnaryOperator order(Request request) {
        return switch (request.text("order", "round_robin")) {
            case "round_robin" -> new IntUnaryOperator() {
                private int next;

                @Override
                public int applyAsInt(int size) {
                    return next++ % size;
                }
            };
            case "random" -> {
                SplittableRandom random = request.has("seed")
                        ? new SplittableRandom(request.number("seed")) : new SplittableRandom();
                yield random::nextInt;
            }
            default -> throw new BadInput("order is neither round_robin nor random");
        };
    }

    private static GrantLog grantLog(Request request) throws IOException {
        return request.has("path") ? GrantLog.to(Path.of(request.text("path"))) : GrantLog.none();
    }

    private static Witness witness(Request request) throws IOException {
        if (!request.has("witness_dir")) {
            return Witness.none();
        }
        if (!Kind.named(request.text("kind")).isLimited()) {
            throw new BadInput("witness_dir needs a kind with a limit");
        }
        Path directory = Files.createDirectories(Path.of(request.text("witness_dir")));
        return Witness.in(directory, request.smallNumber("places", 1));
    }
}
