// etcd3 alone: what a Lock can be asked.
"use strict";

const { Lock } = require("etcd3/lib/lock.js");

console.log(Object.getOwnPropertyNames(Lock.prototype).sort().join(" "), Lock.prototype.acquire.length);
