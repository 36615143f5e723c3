import java.util.ArrayList;
import java.util.List;
import org.redisson.Redisson;
import org.redisson.api.BatchOptions;
import org.redisson.api.BatchOptions.ExecutionMode;
import org.redisson.api.RBatch;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/** The till of till.rs in Java: the same lock by Redisson, the same stock, the same lines to the manager. */
final class Till {
    private static final int SELLERS = 4;

    public static void main(String[] arguments) throws Exception {
        Config config = new Config();
        config.useSingleServer().setAddress(System.getenv("REDIS_URL"));
        RedissonClient redisson = Redisson.create(config);
        RLock own = redisson.getLock(arguments[1] + ":lock-of-java"); // so that no class has to be loaded later
        own.lock();
        own.unlock();
        System.out.println("ready " + redisson.getId());
        if (System.in.read() < 0) { // the manager opens the till, or is gone
            System.exit(0);
        }
        List<Thread> sellers = new ArrayList<>();
        for (int number = 1; number <= SELLERS; number++) {
            String who = arguments[2] + " " + number;
            sellers.add(new Thread(() -> work(redisson, arguments[1], who)));
        }
        new Thread(() -> endWithTheManager()).start();
        sellers.forEach(Thread::start);
        for (Thread seller : sellers) {
            seller.join();
        }
        System.out.println("done");
    }

    /** Sells until nothing is left. */
    private static void work(RedissonClient redisson, String sale, String who) {
        try {
            while (sell(redisson, sale, who)) {
            }
        } catch (Exception error) {
            System.out.println("failed " + error);
        }
    }

    /** Sells one item; returns false if nothing is left. */
    private static boolean sell(RedissonClient redisson, String sale, String who) throws InterruptedException {
        RLock lock = redisson.getLock(sale + ":lock");
        long askedAt = now();
        lock.lock();
        try {
            long grantedAt = now();
            String stock = redisson.<String>getBucket(sale + ":stock", StringCodec.INSTANCE).get();
            int item = Integer.parseInt(stock);
            if (item == 0) {
                return false;
            }
            lock.lock(); // to find the price, as in till.rs
            int holds = lock.getHoldCount();
            lock.unlock();
            String record = item + " " + who + " 1999";
            Thread.sleep(2);

            RBatch batch = redisson.createBatch(BatchOptions.defaults().executionMode(ExecutionMode.IN_MEMORY_ATOMIC));
            batch.getBucket(sale + ":stock", StringCodec.INSTANCE).setAndKeepTTLAsync(String.valueOf(item - 1));
            batch.getList(sale + ":sales", StringCodec.INSTANCE).addAsync(record);
            batch.execute();
            long waited = grantedAt - askedAt;
            System.out.println("sold " + waited + " " + grantedAt + " " + now() + " " + holds + " " + record);
            return true;
        } finally {
            lock.unlock();
        }
    }

    private static void endWithTheManager() {
        try {
            while (System.in.read() >= 0) {
            }
        } catch (java.io.IOException gone) {
            // as at the end of the input
        }
        System.exit(0);
    }

    /** Microseconds of the clock that till.rs reads; on Linux they are the same. */
    private static long now() {
        return System.nanoTime() / 1_000;
    }
}
