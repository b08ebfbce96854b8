import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Locks users with Redisson, as the tutorial's shop does. Arguments: the URL of Redis ("cluster" before it for a
 * cluster), the prefix of lock names, the milliseconds of the watchdog, and the JDBC URL of MySQL.
 *
 * <p>It reads one command a line, and answers with a line of the same words; times are microseconds of Unix time:
 * <ul>
 *   <li>{@code lock USER MS}: waits for the lock; 0 ms: without a lease of its own, so the watchdog renews it
 *   <li>{@code try USER}: answers at once whether it got the lock, and releases it
 *   <li>{@code unlock USER}
 *   <li>{@code sections COUNT USERS}: critical sections in 16 threads, on users from 1 to USERS
 * </ul>
 */
public final class Locks {
    private static RedissonClient redis;
    private static String prefix;
    private static String database;
    private static final Map<String, ExecutorService> threads = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        boolean isCluster = args[0].equals("cluster");
        int at = isCluster ? 1 : 0;
        Config config = new Config();
        config.setLockWatchdogTimeout(Long.parseLong(args[at + 2]));
        if (isCluster) {
            config.useClusterServers().addNodeAddress(args[at].split(",")).setScanInterval(1000);
        } else {
            config.useSingleServer().setAddress(args[at]);
        }
        redis = Redisson.create(config);
        prefix = args[at + 1];
        database = args[at + 3];
        answer("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            // A lock belongs to the thread that took it.
            String owner = words[0].equals("try") ? "try" : words[1];
            threads.computeIfAbsent(owner, any -> Executors.newSingleThreadExecutor()).submit(() -> run(words));
        }
        System.exit(0);
    }

    private static void run(String[] words) {
        try {
            RLock lock = redis.getLock(prefix + words[1]);
            if (words[0].equals("lock")) {
                long lease = Long.parseLong(words[2]);
                if (lease > 0) {
                    lock.lock(lease, TimeUnit.MILLISECONDS);
                } else {
                    lock.lock();
                }
                answer("lock " + words[1] + " " + now());
            } else if (words[0].equals("try")) {
                boolean isLocked = lock.tryLock();
                if (isLocked) {
                    lock.unlock();
                }
                answer("try " + words[1] + " " + isLocked);
            } else if (words[0].equals("unlock")) {
                long before = now();
                lock.unlock();
                answer("unlock " + words[1] + " " + before);
            } else {
                sections(Integer.parseInt(words[1]), Integer.parseInt(words[2]));
                answer("sections " + words[1]);
            }
        } catch (Throwable error) {
            answer("error " + String.join(" ", words) + ": " + error);
        }
    }

    /** Reads a counter of a user, and writes one more, in two steps: only the lock keeps the count right. */
    private static void sections(int count, int users) throws Exception {
        AtomicInteger left = new AtomicInteger(count);
        ExecutorService pool = Executors.newFixedThreadPool(16);
        for (int thread = 0; thread < 16; thread++) {
            Random random = new Random(thread);
            pool.submit(() -> {
                try (Connection mysql = DriverManager.getConnection(database)) {
                    while (left.getAndDecrement() > 0) {
                        int user = 1 + random.nextInt(users);
                        RLock lock = redis.getLock(prefix + user);
                        lock.lock();
                        try {
                            section(mysql, user);
                        } finally {
                            lock.unlock();
                        }
                    }
                } catch (Throwable error) {
                    answer("error section: " + error);
                }
            });
        }
        pool.shutdown();
        pool.awaitTermination(10, TimeUnit.MINUTES);
    }

    private static void section(Connection mysql, int user) throws Exception {
        int count;
        try (PreparedStatement read = mysql.prepareStatement("SELECT n FROM counter WHERE user = ?")) {
            read.setInt(1, user);
            ResultSet rows = read.executeQuery();
            rows.next();
            count = rows.getInt(1);
        }
        mysql.setAutoCommit(false);
        try (PreparedStatement write = mysql.prepareStatement("UPDATE counter SET n = ? WHERE user = ?");
                PreparedStatement note = mysql.prepareStatement("INSERT INTO section (user) VALUES (?)")) {
            write.setInt(1, count + 1);
            write.setInt(2, user);
            write.executeUpdate();
            note.setInt(1, user);
            note.executeUpdate();
            mysql.commit();
        } finally {
            mysql.setAutoCommit(true);
        }
    }

    private static long now() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    }

    private static synchronized void answer(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
