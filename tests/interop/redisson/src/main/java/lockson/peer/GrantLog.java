package lockson.peer;

import java.io.IOException;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/** Writes the times of each hold, one line for each grant, flushed at once so that the lines survive a kill. */
final class GrantLog implements AutoCloseable {
    private final Writer file;

    private GrantLog(Writer file) {
        this.file = file;
    }

    static GrantLog none() {
        return new GrantLog(Writer.nullWriter());
    }

    static GrantLog to(Path path) throws IOException {
        return new GrantLog(Files.newBufferedWriter(path, StandardCharsets.US_ASCII));
    }

    void add(List<String> names, long acquiredNanos, long releasedNanos) throws IOException {
        for (String name : names) {
            file.write(Percent.encode(name) + "," + acquiredNanos + "," + releasedNanos + "\n");
        }
        file.flush();
    }

    @Override
    public void close() throws IOException {
        file.close();
    }
}
