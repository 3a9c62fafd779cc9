// NOT RUN: nobody here has compiled or judged this adapter. It shows how one for ShedLock would look, by its documentation (5.x).
//
// ShedLock, by its provider for Redis (Jedis). What it is by default, and here: SET NX PX with a random value. It does not wait: who does
// not get the lock skips the task. lockAtMostFor is the TTL; lockAtLeastFor, which keeps the lock after an unlock, is 0 here. extend()
// gives another lock object, and the old one is no more. There are no tokens. ShedLock says of itself that it is no distributed lock for
// mutual exclusion in general, but for tasks that are to run once.

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Scanner;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.redis.jedis4.JedisLockProvider;
import redis.clients.jedis.JedisPool;

public class ShedLock {
  static class Locker {
    String name;
    Duration ttl;
    SimpleLock held; // null: nothing is held
  }

  static final Gson gson = new Gson();
  static final Map<String, Locker> lockers = new HashMap<>();
  static LockProvider provider;

  static void say(Map<String, Object> line) {
    System.out.println(gson.toJson(line));
    System.out.flush();
  }

  static String answer(JsonObject r) {
    String op = r.get("op").getAsString(), id = r.get("locker").getAsString();
    if (op.equals("open")) {
      Locker made = new Locker();
      made.name = r.get("name").getAsString();
      made.ttl = Duration.ofMillis(r.get("ttl_ms").getAsLong());
      lockers.put(id, made);
      return "ok";
    }
    Locker l = lockers.get(id);
    switch (op) {
      case "try": {
        Optional<SimpleLock> taken = provider.lock(new LockConfiguration(Instant.now(), l.name, l.ttl, Duration.ZERO));
        if (taken.isEmpty()) return "held";
        if (l.held != null) { // it had expired: nobody has told
          taken.get().unlock();
          return "lost";
        }
        l.held = taken.get();
        return "ok";
      }
      case "unlock": {
        if (l.held == null) return "not-held";
        SimpleLock held = l.held;
        l.held = null;
        held.unlock(); // it does not tell whether it was held
        return "ok";
      }
      case "extend": {
        if (l.held == null) return "not-held";
        Optional<SimpleLock> extended = l.held.extend(l.ttl, Duration.ZERO);
        if (extended.isEmpty()) return "lost";
        l.held = extended.get();
        return "ok";
      }
      case "close":
        lockers.remove(id);
        return "ok";
      default:
        throw new UnsupportedOperationException("no such operation: " + op);
    }
  }

  public static void main(String[] args) {
    String[] address = System.getenv("LOCKER_ADDRESS").split(":");
    provider = new JedisLockProvider(new JedisPool(address[0], Integer.parseInt(address[1])), "locker");
    say(Map.of("protocol", 1, "name", "ShedLock", "capabilities", new String[] {"try", "unlock", "extend", "expire", "share"}));
    for (Scanner lines = new Scanner(System.in, "UTF-8"); lines.hasNextLine(); ) {
      JsonObject r = gson.fromJson(lines.nextLine(), JsonObject.class);
      long id = r.get("id").getAsLong();
      try {
        say(Map.of("id", id, "result", answer(r)));
      } catch (RuntimeException e) {
        say(Map.of("id", id, "result", "error", "error", e.toString()));
      }
    }
  }
}
