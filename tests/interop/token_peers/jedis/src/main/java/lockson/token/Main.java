package lockson.token;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.net.URI;
import java.util.List;
import java.util.Properties;
import java.util.UUID;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.params.SetParams;

/** The lock that people write by hand with Jedis, behind the commands of ../README.md. */
public final class Main {
    private static final String UNLOCK =
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
    private static final String EXTEND =
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";

    private final Jedis jedis;
    private final String name;
    private String value;

    private Main(Jedis jedis, String name) {
        this.jedis = jedis;
        this.name = name;
    }

    public static void main(String[] arguments) throws Exception {
        try (Jedis jedis = new Jedis(URI.create(arguments[0]))) {
            jedis.ping();
            Main peer = new Main(jedis, arguments[1]);
            System.out.println("ready Jedis " + version());
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] words = line.trim().split(" ");
                System.out.println(peer.act(words[0], words.length > 1 ? words[1] : ""));
            }
        }
    }

    private String act(String word, String argument) throws InterruptedException {
        switch (word) {
            case "try":
                return take(Long.parseLong(argument)) ? "taken" : "busy";
            case "lock":
                while (!take(Long.parseLong(argument))) {
                    Thread.sleep(10);
                }
                return "taken";
            case "unlock":
                return ifOurs(jedis.eval(UNLOCK, List.of(name), List.of(value)));
            case "extend":
                return ifOurs(jedis.eval(EXTEND, List.of(name), List.of(value, argument)));
            case "adopt":
                value = argument;
                return "done";
            default:
                throw new IllegalArgumentException("not understood: " + word);
        }
    }

    private boolean take(long milliseconds) {
        value = UUID.randomUUID().toString();
        return "OK".equals(jedis.set(name, value, SetParams.setParams().nx().px(milliseconds)));
    }

    private static String ifOurs(Object reply) {
        return Long.valueOf(1).equals(reply) ? "done" : "not ours";
    }

    private static String version() throws IOException {
        Properties properties = new Properties();
        try (InputStream file = Jedis.class.getResourceAsStream("/META-INF/maven/redis.clients/jedis/pom.properties")) {
            properties.load(file);
        }
        return properties.getProperty("version");
    }
}
