"""kazoo's Lock, for the conformance suite.

What it is by default, and here: an ephemeral sequential node, and a watch on the one before. A hold lasts as long as the session, which
the client keeps alive by itself: it has no TTL of its own and no extend(), so that this claims neither. timeout, of the session, is 10 s
by default; here it is the TTL. acquire() waits without a limit unless timeout is given; cancel() ends it from another thread. A client
reports the state of its connection to listeners; a Lock does not look at it. The names of nodes are paths: a name is encoded here.
"""

import os
import sys
from urllib.parse import quote

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import CancelledError, LockTimeout
from kazoo.version import __version__

from lines import CANCELLED, HELD, LOST, NOT_HELD, OK, serve

clients = {}  # by the time-out of their sessions


def client(ttl):
    if ttl not in clients:
        clients[ttl] = KazooClient(hosts=os.environ["LOCKER_ADDRESS"], timeout=ttl)
        clients[ttl].start()
    return clients[ttl]


class Locker:
    def __init__(self, name, ttl):
        self.client = client(ttl)
        self.recipe = self.client.Lock("/locks/" + quote(name, safe="").replace(".", "%2E"))
        self.lost = False
        self.client.add_listener(self._listen)

    def _listen(self, state):  # as its documentation advises
        if state == KazooState.LOST and self.recipe.is_acquired:
            self.lost = True

    def _acquire(self, **how):
        if self.lost:
            return LOST
        try:
            return OK if self.recipe.acquire(**how) else HELD
        except (LockTimeout, CancelledError):
            return HELD if self.client.connected else CANCELLED

    def lock(self, limit):
        return self._acquire(timeout=limit)

    def try_(self):
        return self._acquire(blocking=False)

    def cancel(self):
        self.recipe.cancel()

    def unlock(self):
        lost, self.lost = self.lost, False
        if not self.recipe.is_acquired:
            return NOT_HELD
        self.recipe.release()
        return LOST if lost else OK

    def close(self):
        self.client.remove_listener(self._listen)


serve("kazoo " + __version__, ["lock", "try", "unlock", "cancel", "share"], Locker)
