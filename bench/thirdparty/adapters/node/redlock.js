// npm's redlock, for the conformance suite, with one server.
//
// What it is by default, and here: SET with a random value and PX in a script that looks first, at a majority of servers. acquire() tries
// 11 times (retryCount 10), 200 ms apart (retryDelay), give or take 100 ms (retryJitter), and so do release() and extend(), which outlasts a
// short TTL. Here retryCount is 0, and the suite asks again. driftFactor is 0.01.
// A Lock is an object per hold, with the time at which it expires: extend() returns another. Nothing bounds a request to a server that
// does not answer, by default; here it is ioredis's commandTimeout, a third of the TTL.

"use strict";

const fs = require("node:fs");
const path = require("node:path");

const Redis = require("ioredis");
const { default: Redlock, ExecutionError, ResourceLockedError } = require("redlock");
const { serve } = require("./lines.js");

const [host, port] = process.env.LOCKER_ADDRESS.split(":");
const clients = new Map(); // by the TTL

function redlockFor(ttl) {
  if (!clients.has(ttl)) {
    const client = new Redis({ host, port: Number(port), commandTimeout: Math.ceil(ttl / 3) });
    client.on("error", () => {}); // it connects again by itself
    clients.set(ttl, new Redlock([client], { retryCount: 0 }));
  }
  return clients.get(ttl);
}

// refused reports whether all attempts of a failed call were answered by the server with no: the value was not there, or another's.
async function refused(error) {
  if (!(error instanceof ExecutionError)) return false;
  for (const attempt of error.attempts) {
    const { votesAgainst } = await attempt;
    for (const why of votesAgainst.values()) if (!(why instanceof ResourceLockedError)) return false;
  }
  return true;
}

class Locker {
  constructor(name, ttl) {
    Object.assign(this, { name, ttl, redlock: redlockFor(ttl), held: null, lost: false });
  }

  isLost() {
    return this.lost || (this.held !== null && this.held.expiration <= Date.now());
  }

  async try() {
    if (this.isLost()) return "lost";
    let taken;
    try {
      taken = await this.redlock.acquire([this.name], this.ttl);
    } catch (e) {
      if (await refused(e)) return "held";
      throw e;
    }
    if (this.held === null) {
      this.held = taken;
      return "ok";
    }
    await taken.release().catch(() => {}); // it was granted once more before its unlock
    this.lost = true;
    return "lost";
  }

  async unlock() {
    const held = this.held;
    const lost = this.isLost();
    this.held = null;
    this.lost = false;
    if (held === null) return "not-held";
    try {
      await held.release();
    } catch (e) {
      if (lost || (await refused(e))) return "lost";
      throw e;
    }
    return lost ? "lost" : "ok";
  }

  async extend() {
    if (this.held === null) return "not-held";
    if (this.isLost()) return "lost";
    try {
      this.held = await this.held.extend(this.ttl);
    } catch (e) {
      if (await refused(e)) { // also of "Cannot extend an already-expired lock", which has no attempts
        this.lost = true;
        return "lost";
      }
      throw e;
    }
    return "ok";
  }
}

const manifest = path.join(require.resolve("redlock"), "..", "..", "..", "package.json"); // which it does not export
const { version } = JSON.parse(fs.readFileSync(manifest));
serve("redlock (npm) " + version, ["try", "unlock", "extend", "expire", "share"], (name, ttl) => new Locker(name, ttl));
