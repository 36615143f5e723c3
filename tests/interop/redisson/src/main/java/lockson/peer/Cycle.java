package lockson.peer;

import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntUnaryOperator;

/** The load loop: enter a section, hold the section, leave the section, again until the time is over. */
final class Cycle {
    /** Pauses after a failure, so that a loop without a server does not occupy a processor. */
    private static final long PAUSE_AFTER_ERROR_NANOS = TimeUnit.MILLISECONDS.toNanos(20);
    /** Shorter holds spin, because a parked thread wakes too late. */
    private static final long SHORTEST_PARK_NANOS = TimeUnit.MICROSECONDS.toNanos(100);

    private final List<Section> choices;
    private final IntUnaryOperator order;
    private final Witness witness;
    private final GrantLog grants;
    private long granted;
    private long longestWait;
    private long lost;
    private long errors;
    private String firstError;
    private boolean interrupted;

    /** {@code order} gives the next index for a number of choices. */
    Cycle(List<Section> choices, IntUnaryOperator order, Witness witness, GrantLog grants) {
        this.choices = choices;
        this.order = order;
        this.witness = witness;
        this.grants = grants;
    }

    void run(long durationMillis, long holdMicros, long pauseMicros) throws IOException {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(durationMillis);
        while (!interrupted && System.nanoTime() - end < 0) {
            Section section = choices.get(order.applyAsInt(choices.size()));
            long asked = System.nanoTime();
            if (enter(section)) {
                long acquired = System.nanoTime();
                granted++;
                longestWait = Math.max(longestWait, acquired - asked);
                hold(section, acquired, TimeUnit.MICROSECONDS.toNanos(holdMicros));
            }
            idleUntil(System.nanoTime() + TimeUnit.MICROSECONDS.toNanos(pauseMicros));
        }
    }

    void put(Answer answer) {
        answer.put("grants", granted).put("lost", lost).put("errors", errors);
        answer.put("interrupted", interrupted).put("longest_wait_ns", longestWait);
        if (firstError != null) {
            answer.put("first_error", firstError);
        }
    }

    private boolean enter(Section section) {
        try {
            return section.enter();
        } catch (Exception thrown) {
            note(thrown);
            return false;
        }
    }

    private void hold(Section section, long acquired, long holdNanos) throws IOException {
        List<Path> seen = witness.enter(section.names());
        idleUntil(acquired + holdNanos);
        witness.leave(seen);
        interrupted |= Thread.interrupted(); // Redisson cannot release while the flag is set
        long released = System.nanoTime();
        try {
            section.leave();
        } catch (Exception thrown) {
            note(thrown);
        }
        grants.add(section.names(), acquired, released);
    }

    private void note(Exception thrown) {
        Failure failure = Failure.of(thrown);
        interrupted |= Thread.interrupted() || failure.kind().equals("interrupted");
        if (failure.kind().equals("not_owner")) {
            lost++;
            return;
        }
        if (!interrupted) {
            errors++;
            firstError = firstError == null ? failure.message() : firstError;
            idleUntil(System.nanoTime() + PAUSE_AFTER_ERROR_NANOS);
        }
    }

    private void idleUntil(long deadline) {
        for (long left = deadline - System.nanoTime(); left > 0; left = deadline - System.nanoTime()) {
            if (Thread.interrupted()) {
                interrupted = true;
                return;
            }
            if (left < SHORTEST_PARK_NANOS) {
                Thread.onSpinWait();
            } else {
                LockSupport.parkNanos(left);
            }
        }
    }
}
