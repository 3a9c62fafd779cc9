"""redis-py alone: an acquire that failed, whose request is still on its way."""

import os

import redis

host, port = os.environ["LOCKER_ADDRESS"].rsplit(":", 1)
try:
    redis.Redis(host=host, port=int(port), socket_timeout=0.3).lock("x", timeout=60).acquire(blocking=False)
except redis.exceptions.TimeoutError:
    print("failed")
