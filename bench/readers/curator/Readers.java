import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Readers is the part of Curator's InterProcessReadWriteLock in the benchmark of this folder: java Readers ADDRESS READERS CLIENTS. It prints "ready", and
 * for each line that it reads takes the lock as the writer, holds it for a millisecond, and prints how many microseconds that waited, how many reads there have been, and the longest
 * wait of one in microseconds.
 */
public class Readers {
    static final AtomicLong reads = new AtomicLong(), longest = new AtomicLong();

    static CuratorFramework connect(String address) {
        CuratorFramework client = CuratorFrameworkFactory.newClient(address, new ExponentialBackoffRetry(1000, 3));
        client.start();
        return client;
    }

    static long waited(InterProcessLock lock, long holdMillis) throws Exception {
        long start = System.nanoTime();
        lock.acquire();
        long waited = (System.nanoTime() - start) / 1000;
        try {
            Thread.sleep(holdMillis);
        } finally {
            lock.release();
        }
        return waited;
    }

    public static void main(String[] args) throws Exception {
        int readers = Integer.parseInt(args[1]), clients = Integer.parseInt(args[2]);
        for (int i = 0; i < clients; i++) {
            CuratorFramework client = connect(args[0]);
            for (int j = 0; j < readers / clients; j++) {
                Thread thread = new Thread(() -> {
                    try {
                        InterProcessLock lock = new InterProcessReadWriteLock(client, "/readers").readLock();
                        while (true) {
                            long waited = waited(lock, 100);
                            reads.incrementAndGet();
                            longest.accumulateAndGet(waited, Math::max);
                        }
                    } catch (Exception e) {
                        e.printStackTrace();
                        System.exit(1);
                    }
                });
                thread.setDaemon(true);
                thread.start();
            }
        }
        InterProcessLock lock = new InterProcessReadWriteLock(connect(args[0]), "/readers").writeLock();
        System.out.println("ready");
        while (System.in.read() == '\n') {
            System.out.println(waited(lock, 1) + " " + reads.getAndSet(0) + " " + longest.getAndSet(0));
        }
        System.exit(0);
    }
}
