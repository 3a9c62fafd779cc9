"""redis-py's Lock, for the conformance suite.

What it is by default, and here: a key with a random value, SET NX PX. acquire() polls every 0.1 s (sleep), without a limit unless
blocking_timeout is given; it is given what the suite allows. The value is in thread-local storage. By default nothing bounds a request to
a server that does not answer (socket_timeout=None); here it is a third of the TTL. Nothing is sent again. timeout, the TTL, is None by
default: a lock for ever; here it is the suite's. extend() adds to what is left of the TTL unless replace_ttl=True, which the contract wants.
"""

import importlib.metadata
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

import redis
from redis.exceptions import LockError, LockNotOwnedError

from lines import HELD, LOST, NOT_HELD, OK, serve

host, port = os.environ["LOCKER_ADDRESS"].rsplit(":", 1)
clients = {}  # by the TTL


def client(ttl):
    if ttl not in clients:
        clients[ttl] = redis.Redis(host=host, port=int(port), socket_timeout=ttl / 3, socket_connect_timeout=ttl / 3)
    return clients[ttl]


class Locker:
    def __init__(self, name, ttl):
        self.lock_, self.ttl = client(ttl).lock(name, timeout=ttl), ttl
        self.lost = False  # the library keeps no such thing: its user has to

    def _acquire(self, **how):
        if self.lost:
            return LOST
        return OK if self.lock_.acquire(**how) else HELD

    def lock(self, limit, _):
        return self._acquire(blocking_timeout=limit)

    def try_(self):
        return self._acquire(blocking=False)

    def unlock(self):
        try:
            self.lock_.release()
        except LockNotOwnedError:
            return LOST
        except LockError:  # "Cannot release an unlocked lock"
            return NOT_HELD
        finally:
            self.lost = False
        return OK

    def extend(self):
        try:
            self.lock_.extend(self.ttl, replace_ttl=True)
        except LockNotOwnedError:
            self.lost = True
            return LOST
        except LockError:  # "Cannot extend an unlocked lock"
            return NOT_HELD
        return OK

    def close(self):
        pass


serve("redis-py " + importlib.metadata.version("redis"), ["lock", "try", "unlock", "extend", "expire", "share"], Locker)
