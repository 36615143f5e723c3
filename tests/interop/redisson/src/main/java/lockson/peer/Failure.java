package lockson.peer;

import java.util.concurrent.TimeoutException;
import org.redisson.client.RedisException;
import org.redisson.client.RedisTimeoutException;

/** Sorts any exception into the few kinds of the protocol. */
record Failure(String kind, String message) {
    static Failure of(Throwable thrown) {
        return new Failure(kindOf(thrown), describe(thrown));
    }

    /** A failure on an interrupted thread counts as an effect of the interrupt, whatever the exception. */
    static Failure interrupted(Throwable thrown) {
        return new Failure("interrupted", describe(thrown));
    }

    private static String kindOf(Throwable thrown) {
        boolean fromRedis = false;
        for (Throwable cause = thrown; cause != null; cause = cause.getCause()) {
            if (cause instanceof BadInput) {
                return "bad_input";
            } else if (cause instanceof InterruptedException) {
                return "interrupted";
            } else if (cause instanceof IllegalMonitorStateException) {
                return mentions(cause, "non-reentrant") ? "already_held" : "not_owner";
            } else if (cause instanceof IllegalArgumentException) {
                return mentions(cause, "already been released") ? "not_owner" : "bad_input";
            } else if (cause instanceof UnsupportedOperationException) {
                return "unsupported";
            } else if (cause instanceof RedisTimeoutException || cause instanceof TimeoutException) {
                return "timeout";
            }
            fromRedis |= cause instanceof RedisException;
        }
        return fromRedis ? "redis" : "other";
    }

    private static boolean mentions(Throwable thrown, String words) {
        return thrown.getMessage() != null && thrown.getMessage().contains(words);
    }

    private static String describe(Throwable thrown) {
        return thrown instanceof BadInput ? thrown.getMessage() : thrown.toString();
    }
}
