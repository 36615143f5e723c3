package lockson.peer;

import java.io.IOException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;

/**
 * Proves exclusion independently of Redis: each holder of a name owns a file in a shared directory.
 *
 * <p>The file is a hard link to a file with the pid, so the file appears at once with its content.
 */
final class Witness implements AutoCloseable {
    private final Path directory;
    private final Path card;
    /** How many holders a name may have. */
    private final int places;
    private long violations;
    private long takeovers;

    private Witness(Path directory, Path card, int places) {
        this.directory = directory;
        this.card = card;
        this.places = places;
    }

    static Witness none() {
        return new Witness(null, null, 0);
    }

    static Witness in(Path directory, int places) throws IOException {
        Path card = Files.createTempFile(directory, "card-", ".pid");
        Files.writeString(card, Long.toString(ProcessHandle.current().pid()));
        return new Witness(directory, card, places);
    }

    long violations() {
        return violations;
    }

    long takeovers() {
        return takeovers;
    }

    /** Returns the files that now mark a place of each name, for {@link #leave}; none after a violation. */
    List<Path> enter(List<String> names) throws IOException {
        List<Path> marked = new ArrayList<>();
        if (directory == null) {
            return marked;
        }
        for (String name : names) {
            Path file = place(name);
            if (file == null) {
                violations++;
                record(name);
                leave(marked);
                return List.of();
            }
            marked.add(file);
        }
        return marked;
    }

    /** Also what a process sees that is killed before it answers. */
    private void record(String name) throws IOException {
        String line = "\"" + name + "\": process " + ProcessHandle.current().pid() + " came beside another holder\n";
        Files.writeString(directory.resolve("violations"), line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    void leave(List<Path> marked) throws IOException {
        for (Path file : marked) {
            Files.deleteIfExists(file);
        }
    }

    @Override
    public void close() throws IOException {
        if (card != null) {
            Files.deleteIfExists(card);
        }
    }

    /** The file of the place that is now marked, or null if living processes have all places. */
    private Path place(String name) throws IOException {
        for (int place = 1; place <= places; place++) {
            Path file = file(name, place);
            if (mark(file)) {
                return file;
            }
        }
        return null;
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

    private Path file(String name, int place) {
        return directory.resolve(Percent.encode(name) + ".inside" + (place == 1 ? "" : "." + place));
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
