// NOT RUN: nobody here has compiled or judged this adapter. It shows how one for Redisson would look, by its documentation (3.27).
//
// Redisson's RFencedLock, for the conformance suite. What it is by default, and here: a hash in Redis with a counter, reentrant for the
// same thread of the same client, and a channel that wakes waiters. With a lease time, as here, no watchdog renews it (the watchdog's
// lock lasts 30 s). A hold is a thread's: each Locker has one here. A lock that was taken twice by its thread is held twice: this
// adapter tries from another thread then, as the contract wants a Locker that is not reentrant. There is no call that extends a lease.

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

public class Redisson {
  static final Gson gson = new Gson();
  static final Map<String, Locker> lockers = new ConcurrentHashMap<>();
  static RedissonClient client;

  static class Locker {
    final ExecutorService own = Executors.newSingleThreadExecutor(); // whose thread holds
    final RFencedLock lock;
    final long ttl;
    long token; // 0: nothing is held

    Locker(String name, long ttl) {
      this.lock = client.getFencedLock(name);
      this.ttl = ttl;
    }

    String take(long wait) throws Exception {
      if (token != 0) {
        if (!lock.isHeldByThread(holder())) return "lost";
        Thread.sleep(wait); // it would be granted once more
        return "held";
      }
      Long granted = own.submit(() -> lock.tryLockAndGetToken(wait, ttl, TimeUnit.MILLISECONDS)).get();
      if (granted == null) return "held";
      token = granted;
      return "ok";
    }

    long holder() throws Exception {
      return own.submit(() -> Thread.currentThread().getId()).get();
    }

    String unlock() throws Exception {
      if (token == 0) return "not-held";
      token = 0;
      return own.submit(() -> {
        try {
          lock.unlock();
          return "ok";
        } catch (IllegalMonitorStateException notOurs) {
          return "lost";
        }
      }).get();
    }
  }

  static void say(Object line) {
    System.out.println(gson.toJson(line));
    System.out.flush();
  }

  static String answer(JsonObject r) throws Exception {
    String op = r.get("op").getAsString(), id = r.get("locker").getAsString();
    if (op.equals("open")) {
      if (r.get("name").getAsString().isEmpty()) throw new IllegalArgumentException("the name is empty");
      lockers.put(id, new Locker(r.get("name").getAsString(), r.get("ttl_ms").getAsLong()));
      return "ok";
    }
    Locker l = lockers.get(id);
    switch (op) {
      case "lock": return l.take(r.has("limit_ms") ? r.get("limit_ms").getAsLong() : Long.MAX_VALUE / 2);
      case "try": return l.take(0);
      case "unlock": return l.unlock();
      case "token": return "ok";
      case "close": lockers.remove(id).own.shutdown(); return "ok";
      default: throw new UnsupportedOperationException("no such operation: " + op);
    }
  }

  public static void main(String[] args) {
    Config config = new Config();
    config.useSingleServer().setAddress("redis://" + System.getenv("LOCKER_ADDRESS"));
    client = org.redisson.Redisson.create(config);
    say(Map.of("protocol", 1, "name", "Redisson RFencedLock", "capabilities", new String[] {"lock", "try", "unlock", "token", "expire", "share"}));
    for (Scanner lines = new Scanner(System.in, "UTF-8"); lines.hasNextLine(); ) {
      JsonObject r = gson.fromJson(lines.nextLine(), JsonObject.class);
      long id = r.get("id").getAsLong();
      try {
        String result = answer(r);
        boolean token = r.get("op").getAsString().equals("token");
        say(token ? Map.of("id", id, "result", result, "token", lockers.get(r.get("locker").getAsString()).token) : Map.of("id", id, "result", result));
      } catch (Exception e) {
        say(Map.of("id", id, "result", "error", "error", e.toString()));
      }
    }
    System.exit(0);
  }
}
