// The lines of docs/evidence/judge-any-language.md, for adapters in JavaScript.
//
// An adapter calls serve with a function that makes a Locker for a name and a TTL in milliseconds. A Locker has a method for each
// capability: lock(limit), try(), unlock(), extend(), close(). They return, or promise, one of the results. What they throw is the
// answer "error".

"use strict";

const readline = require("node:readline");

const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");

async function answer(lockers, make, request) {
  if (request.op === "open") {
    if (request.name === "") throw new Error("the name is empty");
    lockers.set(request.locker, await make(request.name, request.ttl_ms));
    return "ok";
  }
  const locker = lockers.get(request.locker);
  if (request.op === "close") {
    lockers.delete(request.locker);
    return "ok";
  }
  if (typeof locker[request.op] !== "function") throw new Error("no such operation: " + request.op);
  return locker[request.op](request.limit_ms);
}

exports.serve = (name, capabilities, make) => {
  const lockers = new Map();
  say({ protocol: 1, name, capabilities });
  const lines = readline.createInterface({ input: process.stdin });
  lines.on("line", async (line) => {
    const request = JSON.parse(line);
    try {
      say({ id: request.id, result: await answer(lockers, make, request) });
    } catch (e) {
      say({ id: request.id, result: "error", error: `${e.name}: ${e.message}` });
    }
  });
  lines.on("close", () => process.exit(0));
};
