import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.function.IntConsumer;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.LongStream;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Java's Redisson, with its own defaults, behind the protocol of ../src/speak.rs. */
public final class Bench {
    private static String[] urls;
    private static RedissonClient client;
    /** Of a lock on several servers. */
    private static final Map<String, RedissonClient> others = new HashMap<>();

    private interface Job {
        void run() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        String jar = Redisson.class.getProtectionDomain().getCodeSource().getLocation().getPath();
        say("ready version=" + jar.replaceAll(".*redisson-(.*)\\.jar", "$1") + " renews=1");
        Map<String, RLock> held = new HashMap<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "open" -> {
                    long begun = System.nanoTime();
                    urls = words[1].split(",");
                    client = connect(urls[0]);
                    takeAndGive(client.getLock("start"));
                    say("us=" + (System.nanoTime() - begun) / 1000);
                }
                case "pair" -> say(pair(words[1], Long.parseLong(words[2]), words[3]));
                case "hold" -> {
                    RLock lock = client.getLock(words[1]);
                    lock.lock();
                    say("at=" + now());
                    held.put(words[1], lock);
                }
                case "give" -> {
                    long at = now();
                    held.remove(words[1]).unlock();
                    say("at=" + at);
                }
                case "wait" -> say("at=" + takeAndGive(client.getLock(words[1])));
                // Without a request there is nothing to learn; `isHeldByCurrentThread()` asks Redis.
                case "believes" -> say("told=" + (held.containsKey(words[1]) ? 1 : 0));
                case "hot" -> say(hot(words[1], Integer.parseInt(words[2]), Long.parseLong(words[3]),
                        Long.parseLong(words[4])));
                case "crowd" -> {
                    say("waiting=" + words[2]);
                    long[] ats = new long[Integer.parseInt(words[2])];
                    all(ats.length, i -> ats[i] = takeAndGive(client.getLock(words[1])));
                    say("at=" + LongStream.of(ats).max().orElse(0));
                }
                case "many" -> {
                    int count = Integer.parseInt(words[1]);
                    long before = memory();
                    for (int i = 0; i < count; i++) {
                        client.getLock("many:" + ProcessHandle.current().pid() + ":" + i).lock();
                    }
                    say("bytes=" + (memory() - before) / count);
                }
                default -> say("no such command: " + words[0]);
            }
        }
        System.exit(0);
    }

    private static RedissonClient connect(String url) {
        Config config = new Config();
        config.useSingleServer().setAddress(url);
        return Redisson.create(config);
    }

    private static String pair(String kind, long millis, String name) throws Exception {
        Job once;
        RLock lock = client.getLock(name);
        switch (kind) {
            case "lock" -> once = () -> takeAndGive(lock);
            case "reentry" -> {
                lock.lock();
                once = () -> takeAndGive(lock);
            }
            case "multi" -> {
                RLock[] ten = IntStream.range(0, 10).mapToObj(i -> client.getLock(name + ":" + i)).toArray(RLock[]::new);
                RLock multi = client.getMultiLock(ten);
                once = () -> takeAndGive(multi);
            }
            case "semaphore" -> {
                RSemaphore semaphore = client.getSemaphore(name);
                semaphore.trySetPermits(5);
                once = () -> {
                    semaphore.acquire();
                    semaphore.release();
                };
            }
            case "red" -> {
                RLock[] five = Arrays.stream(urls)
                        .map(url -> others.computeIfAbsent(url, Bench::connect).getLock(name)).toArray(RLock[]::new);
                @SuppressWarnings("deprecation")
                RLock red = client.getRedLock(five);
                once = () -> takeAndGive(red);
            }
            default -> {
                return "no the library has no such thing";
            }
        }
        List<Long> nanos = new ArrayList<>();
        for (long end = System.nanoTime() + millis * 1_000_000; System.nanoTime() < end;) {
            long begun = System.nanoTime();
            once.run();
            nanos.add(System.nanoTime() - begun);
        }
        if (kind.equals("reentry")) {
            lock.unlock();
        }
        nanos.sort(null);
        return "p50=" + part(nanos, 0.5) + " p99=" + part(nanos, 0.99) + " n=" + nanos.size();
    }

    private static double part(List<Long> nanos, double part) {
        return nanos.get((int) Math.round((nanos.size() - 1) * part)) / 1e3;
    }

    private static long takeAndGive(RLock lock) {
        lock.lock();
        long at = now();
        lock.unlock();
        return at;
    }

    private static String hot(String name, int workers, long millis, long holdMicros) throws InterruptedException {
        long[] grants = new long[workers];
        long[] longest = new long[workers];
        long end = System.nanoTime() + millis * 1_000_000;
        all(workers, i -> {
            RLock lock = client.getLock(name);
            while (System.nanoTime() < end) {
                long asked = System.nanoTime();
                lock.lock();
                longest[i] = Math.max(longest[i], System.nanoTime() - asked);
                grants[i] += System.nanoTime() < end ? 1 : 0;
                if (holdMicros > 0) {
                    try {
                        Thread.sleep(holdMicros / 1000);
                    } catch (InterruptedException e) {
                        throw new IllegalStateException(e);
                    }
                }
                lock.unlock();
            }
        });
        String each = LongStream.of(grants).mapToObj(Long::toString).collect(Collectors.joining(","));
        return "grants=" + each + " longest=" + LongStream.of(longest).max().orElse(0) / 1000;
    }

    private static void all(int count, IntConsumer job) throws InterruptedException {
        CountDownLatch done = new CountDownLatch(count);
        for (int i = 0; i < count; i++) {
            int number = i;
            new Thread(() -> {
                job.accept(number);
                done.countDown();
            }).start();
        }
        done.await();
    }

    /** The heap in use after a collection: a JVM keeps resident what it once needed. */
    private static long memory() throws InterruptedException {
        for (int i = 0; i < 3; i++) {
            System.gc();
            Thread.sleep(50);
        }
        return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
    }

    private static long now() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000 + now.getNano() / 1000;
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
