package lockson.peer;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Properties;

/** Starts the peer, reads one command a line, and ends the process at the end of the input. */
public final class Main {
    private static final String REDISSON_PROPERTIES = "/META-INF/maven/org.redisson/redisson/pom.properties";

    private Main() {
    }

    public static void main(String[] arguments) throws IOException {
        Output output = new Output(new FileOutputStream(FileDescriptor.out));
        System.setOut(System.err); // output of a library must not break the protocol
        Dispatcher dispatcher = new Dispatcher(output);
        output.line("ready " + redissonVersion() + " " + ProcessHandle.current().pid());

        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            if (!line.isBlank()) {
                dispatcher.dispatch(line);
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static String redissonVersion() throws IOException {
        try (InputStream stream = Main.class.getResourceAsStream(REDISSON_PROPERTIES)) {
            if (stream == null) {
                throw new IOException("no Redisson on the class path");
            }
            Properties properties = new Properties();
            properties.load(stream);
            return properties.getProperty("version");
        }
    }
}
