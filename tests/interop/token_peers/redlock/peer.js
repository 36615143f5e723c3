// The lock of node-redlock, version 4 or 5, behind the commands of ../README.md.
"use strict";

const readline = require("readline");
const Redis = require("ioredis");

const [, , library, url, name] = process.argv;
const { version } = JSON.parse(require("fs").readFileSync(`${__dirname}/node_modules/${library}/package.json`, "utf8"));

// The calls of both versions. Only the error about a foreign lock is an answer; any other error ends the process.
const kinds = {
  redlock(client) {
    const Redlock = require("redlock");
    const make = (retryCount) => new Redlock([client], { retryCount, retryDelay: 10, retryJitter: 5 });
    const [once, patient] = [make(0), make(-1)];
    for (const redlock of [once, patient]) redlock.on("clientError", stop);
    return {
      take: (milliseconds, waits) => (waits ? patient : once).lock(name, milliseconds),
      release: (lock) => once.unlock(lock),
      extend: (lock, milliseconds) => once.extend(lock, milliseconds),
      adopt: (value) => new Redlock.Lock(once, [name], value, Date.now() + 30000, 1),
      refuses: (error) => error instanceof Redlock.LockError,
    };
  },
  redlock5(client) {
    const { default: Redlock, Lock, ExecutionError, ResourceLockedError } = require("redlock5");
    const make = (retryCount) => new Redlock([client], { retryCount, retryDelay: 10, retryJitter: 5 });
    const [once, patient] = [make(0), make(-1)];
    for (const redlock of [once, patient]) {
      redlock.on("error", (error) => error instanceof ResourceLockedError || stop(error));
    }
    return {
      take: (milliseconds, waits) => (waits ? patient : once).acquire([name], milliseconds),
      release: (lock) => once.release(lock),
      extend: (lock, milliseconds) => once.extend(lock, milliseconds),
      adopt: (value) => new Lock(once, [name], value, [], Date.now() + 30000),
      refuses: (error) => error instanceof ExecutionError,
    };
  },
};

function stop(error) {
  console.error(error);
  process.exit(1);
}

async function main() {
  const client = new Redis(url);
  await client.ping();
  const locks = kinds[library](client);
  let held;

  // Returns `answer`, or `otherwise` when the library refuses.
  const either = async (act, answer, otherwise) => {
    try {
      held = (await act()) || held;
      return answer;
    } catch (error) {
      return locks.refuses(error) ? otherwise : stop(error);
    }
  };
  const words = {
    try: (value) => either(() => locks.take(Number(value), false), "taken", "busy"),
    lock: (value) => either(() => locks.take(Number(value), true), "taken", "busy"),
    unlock: () => either(async () => void (await locks.release(held)), "done", "not ours"),
    extend: (value) => either(() => locks.extend(held, Number(value)), "done", "not ours"),
    adopt: (value) => either(async () => locks.adopt(value), "done"),
  };

  console.log(`ready node-redlock ${version.replace(/^v/, "")}`);
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [word, value] = line.trim().split(" ");
    if (!words[word]) stop(`not understood: ${line}`);
    console.log(await words[word](value));
  }
  process.exit(0);
}

main().catch(stop);
