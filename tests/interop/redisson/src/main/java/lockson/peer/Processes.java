package lockson.peer;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;

/** Finds out whether a process of this machine is alive. */
final class Processes {
    private Processes() {
    }

    /** A killed process that its parent has not reaped (a zombie) is dead. */
    static boolean isAlive(String pid) throws IOException {
        if (!pid.matches("[0-9]+")) {
            return true;
        }
        try {
            String stat = Files.readString(Path.of("/proc", pid, "stat"));
            char state = stat.charAt(stat.lastIndexOf(')') + 2);
            return state != 'Z' && state != 'X';
        } catch (NoSuchFileException ended) {
            return false;
        } catch (IOException endedWhileReading) {
            return Files.exists(Path.of("/proc", pid));
        }
    }
}
