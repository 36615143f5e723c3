package lockson.peer;

import java.util.Arrays;
import java.util.Locale;

/** The kinds of objects, by their names in the protocol. */
enum Kind {
    PLAIN(Family.LOCK),
    FAIR(Family.LOCK),
    SPIN(Family.LOCK),
    NON_REENTRANT(Family.LOCK),
    NON_REENTRANT_FAIR(Family.LOCK),
    FENCED(Family.LOCK),
    READ(Family.LOCK),
    WRITE(Family.LOCK),
    MULTI(Family.LOCK),
    RED(Family.LOCK),
    FASTER_MULTI(Family.LOCK),
    SEMAPHORE(Family.SEMAPHORE),
    PERMITS(Family.PERMITS),
    LATCH(Family.LATCH);

    /** Kinds with the same verbs. */
    enum Family { LOCK, SEMAPHORE, PERMITS, LATCH }

    private final Family family;

    Kind(Family family) {
        this.family = family;
    }

    static Kind named(String name) {
        return Arrays.stream(values())
                .filter(kind -> kind.protocolName().equals(name))
                .findFirst()
                .orElseThrow(() -> new BadInput("no such kind: '" + name + "'"));
    }

    Family family() {
        return family;
    }

    String protocolName() {
        return name().toLowerCase(Locale.ROOT);
    }

    /** Whether the kind is made of other locks. */
    boolean isComposite() {
        return this == MULTI || this == RED;
    }

    /** Whether the number of threads inside has a limit. */
    boolean isLimited() {
        return family != Family.LATCH && this != READ;
    }
}
