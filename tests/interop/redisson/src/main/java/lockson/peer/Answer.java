package lockson.peer;

import java.util.Collection;
import java.util.concurrent.Callable;
import java.util.stream.Collectors;

/** The answer to one command: the time of the operation, and the outcome. */
final class Answer {
    private final StringBuilder values = new StringBuilder();
    private long startedNanos = System.nanoTime();
    private long returnedNanos;

    interface Action {
        void run() throws Exception;
    }

    /** Runs the command's operation; t0 and t1 are taken right before and after. */
    <T> T time(Callable<T> operation) throws Exception {
        startedNanos = System.nanoTime();
        try {
            return operation.call();
        } finally {
            returnedNanos = System.nanoTime();
        }
    }

    void time(Action operation) throws Exception {
        time(() -> {
            operation.run();
            return null;
        });
    }

    Answer put(String key, Object value) {
        values.append(' ').append(key).append('=').append(Percent.encode(String.valueOf(value)));
        return this;
    }

    Answer putAll(String key, Collection<String> items) {
        String encoded = items.stream().map(Percent::encode).collect(Collectors.joining(","));
        values.append(' ').append(key).append('=').append(encoded);
        return this;
    }

    String ok(String id) {
        return id + " ok" + times() + values;
    }

    String failed(String id, Failure failure) {
        return id + " err" + times() + " kind=" + failure.kind() + " message=" + Percent.encode(failure.message());
    }

    private String times() {
        long end = returnedNanos == 0 ? System.nanoTime() : returnedNanos;
        return " t0=" + startedNanos + " t1=" + end;
    }
}
