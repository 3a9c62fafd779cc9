// npm's etcd3, its Lock, for the conformance suite.
//
// What it is by default, and here: a key that is created if it is not there, on a lease of its own that the client keeps alive until the
// release. The lease's TTL is 30 s by default; here it is the suite's, in whole seconds. acquire() makes one attempt and rejects with
// EtcdLockFailedError: it does not wait. There is no extension, no token that the Lock tells, and a lease that is lost is an event of an
// object that is private to the Lock. Nothing bounds a call by default; here it is
// gRPC's deadline by defaultCallOptions, a third of the TTL.

"use strict";

const { Etcd3, EtcdLockFailedError } = require("etcd3");
const { serve } = require("./lines.js");

const hosts = process.env.LOCKER_ADDRESS.split(",").map((a) => "http://" + a);
const clients = new Map(); // by the TTL

function clientFor(ttl) {
  if (!clients.has(ttl)) {
    const defaultCallOptions = (call) => (call.isStream ? {} : { deadline: Date.now() + ttl / 3 });
    clients.set(ttl, new Etcd3({ hosts, defaultCallOptions }));
  }
  return clients.get(ttl);
}

class Locker {
  constructor(name, ttl) {
    Object.assign(this, { name, client: clientFor(ttl), seconds: Math.ceil(ttl / 1000), held: null });
  }

  async try() {
    const lock = this.client.lock(this.name).ttl(this.seconds);
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
