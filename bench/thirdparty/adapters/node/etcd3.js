// npm's etcd3, its Lock, for the conformance suite.
//
// What it is by default, and here: a key that is created if it is not there, on a lease of its own that the client keeps alive until the
// release. The lease's TTL is 30 s by default; here it is the suite's, in whole seconds. acquire() makes one attempt and rejects with
// EtcdLockFailedError: it does not wait. There is no extension, no token that the Lock tells, and a lease that is lost is an event of an
// object that is private to the Lock. Nothing bounds a call but options of gRPC.

"use strict";

const { Etcd3, EtcdLockFailedError } = require("etcd3");
const { serve } = require("./lines.js");

const client = new Etcd3({ hosts: process.env.LOCKER_ADDRESS.split(",").map((a) => "http://" + a) });

class Locker {
  constructor(name, ttl) {
    Object.assign(this, { name, seconds: Math.ceil(ttl / 1000), held: null });
  }

  async try() {
    const lock = client.lock(this.name).ttl(this.seconds);
    try {
      await lock.acquire();
    } catch (e) {
      if (e instanceof EtcdLockFailedError) return "held";
      throw e;
    }
    this.held = lock;
    return "ok";
  }

  async unlock() {
    const lock = this.held;
    this.held = null;
    if (lock === null) return "not-held";
    await lock.release();
    return "ok";
  }
}

const { version } = require("etcd3/package.json");
serve("etcd3 (npm) " + version, ["try", "unlock", "share"], (name, ttl) => new Locker(name, ttl));
