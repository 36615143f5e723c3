"""The lock of redis-py, behind the commands of ../README.md."""

import sys

import redis
from redis.exceptions import LockNotOwnedError

client = redis.Redis.from_url(sys.argv[1])
lock = None


def take(milliseconds, blocking):
    global lock
    lock = client.lock(sys.argv[2], timeout=milliseconds / 1000, sleep=0.01)
    return "taken" if lock.acquire(blocking=blocking) else "busy"


def adopt(value):
    global lock
    lock = client.lock(sys.argv[2], timeout=30)
    lock.local.token = value.encode()
    return "done"


def if_ours(act):
    try:
        act()
        return "done"
    except LockNotOwnedError:
        return "not ours"


client.ping()
print("ready redis-py", redis.__version__, flush=True)
for line in sys.stdin:
    word, _, value = line.strip().partition(" ")
    if word in ("try", "lock"):
        answer = take(int(value), blocking=word == "lock")
    elif word == "unlock":
        answer = if_ours(lambda: lock.release())
    elif word == "extend":
        answer = if_ours(lambda: lock.extend(int(value) / 1000, replace_ttl=True))
    elif word == "adopt":
        answer = adopt(value)
    else:
        sys.exit(f"not understood: {line!r}")
    print(answer, flush=True)
