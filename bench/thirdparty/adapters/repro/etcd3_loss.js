// etcd3 alone: a Lock whose lease was revoked, when another has the lock.
"use strict";

const { Etcd3 } = require("etcd3");

(async () => {
  const hosts = "http://" + process.env.LOCKER_ADDRESS;
  const [one, other] = [new Etcd3({ hosts }), new Etcd3({ hosts })];
  const lock = await one.lock("x").ttl(60).acquire();
  const before = Object.keys(lock).sort().join(" ");
  await other.leaseClient.leaseRevoke({ ID: await lock.leaseId() });
  await other.lock("x").ttl(60).acquire();
  if (Object.keys(lock).sort().join(" ") !== before) throw new Error("it shows something");
  if (!(await lock.leaseId())) throw new Error("it knows that it has no lease");
  console.log("both hold");
  process.exit(0);
})();
