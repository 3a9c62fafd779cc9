// redlock alone: an acquire that failed, whose request is still on its way.
"use strict";

const Redis = require("ioredis");
const { default: Redlock, ExecutionError } = require("redlock");

const redlock = (address) => {
  const [host, port] = address.split(":");
  const client = new Redis({ host, port: Number(port), commandTimeout: 300, enableReadyCheck: false });
  client.on("error", () => {});
  return new Redlock([client], { retryCount: 0 });
};

(async () => {
  await redlock(process.env.LOCKER_DIRECT).acquire(["y"], 60000); // the server knows the script
  try {
    await redlock(process.env.LOCKER_ADDRESS).acquire(["x"], 60000);
  } catch (e) {
    if (!(e instanceof ExecutionError)) throw e;
    console.log("failed");
    process.exit(0);
  }
})();
