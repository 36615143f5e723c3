package lockson.peer;

import java.io.IOException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;

/**
 * Proves exclusion independently of Redis: the holder of a name owns a file in a shared directory.
 *
 * <p>The file is a hard link to a file with the pid, so the file appears at once with its content.
 */
final class Witness implements AutoCloseable {
    private final Path directory;
    private final Path card;
    private long violations;
    private long takeovers;

    private Witness(Path directory, Path card) {
        this.directory = directory;
        this.card = card;
    }

    static Witness none() {
        return new Witness(null, null);
    }

    static Witness in(Path directory) throws IOException {
        Path card = Files.createTempFile(directory, "card-", ".pid");
        return new Witness(directory, Files.writeString(card, Long.toString(ProcessHandle.current().pid())));
    }

    long violations() {
        return violations;
    }

    long takeovers() {
        return takeovers;
    }

    /** True if all names are marked and {@link #leave} must be called; false after a violation. */
    boolean enter(List<String> names) throws IOException {
        if (directory == null) {
            return false;
        }
        List<String> marked = new ArrayList<>();
        for (String name : names) {
            if (!mark(file(name))) {
                violations++;
                leave(marked);
                return false;
            }
            marked.add(name);
        }
        return true;
    }

    void leave(List<String> names) throws IOException {
        for (String name : names) {
            Files.deleteIfExists(file(name));
        }
    }

    @Override
    public void close() throws IOException {
        if (card != null) {
            Files.deleteIfExists(card);
        }
    }

    private boolean mark(Path file) throws IOException {
        while (true) {
            try {
                Files.createLink(file, card);
                return true;
            } catch (FileAlreadyExistsException somebodyIsInside) {
                if (isAlive(file) || !removeDead(file)) {
                    return false;
                }
            }
        }
    }

    /** Moves the file away first: of several processes that find a dead holder, only one can move the file. */
    private boolean removeDead(Path file) throws IOException {
        Path grave = Files.createTempFile(directory, "dead-", ".pid");
        try {
            Files.move(file, grave, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
            if (isAlive(grave)) {
                return false; // another process entered between the look and the move
            }
            takeovers++;
            return true;
        } catch (NoSuchFileException gone) {
            return true;
        } finally {
            Files.deleteIfExists(grave);
        }
    }

    private Path file(String name) {
        return directory.resolve(Percent.encode(name) + ".inside");
    }

    /** A vanished file has no living owner; an unreadable file counts as living. */
    private static boolean isAlive(Path file) throws IOException {
        try {
            return Processes.isAlive(Files.readString(file).strip());
        } catch (NoSuchFileException gone) {
            return false;
        }
    }
}
