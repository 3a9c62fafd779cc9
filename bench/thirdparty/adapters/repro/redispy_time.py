"""redis-py alone: a hold whose TTL is over looks held, and the same object is granted a new one without a release between."""

import os
import time

import redis

host, port = os.environ["LOCKER_ADDRESS"].rsplit(":", 1)
lock = redis.Redis(host=host, port=int(port)).lock("x", timeout=0.1)
assert lock.acquire(blocking=False)
time.sleep(0.2)
assert lock.local.token is not None, "it knows of no loss"
assert lock.acquire(blocking=False), "another hold, and nobody heard of the end of the first"
