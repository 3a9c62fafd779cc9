"""kazoo's Lock, for the conformance suite.

What it is by default, and here: an ephemeral sequential node, and a watch on the one before. A hold lasts as long as the session, which
the client keeps alive by itself: it has no TTL of its own and no extend(), so that this claims neither. timeout, of the session, is 10 s
by default; here it is the TTL. acquire() waits without a limit unless timeout is given; cancel() ends it from another thread, once it waits. A client
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
        self.path = "/locks/" + quote(name, safe="").replace(".", "%2E")
        self.waiting = {}  # a Lock object for each request: cancel() is of the object
        self.held, self.lost = None, False
        self.client.add_listener(self._listen)

    def _listen(self, state):  # as its documentation advises
        if state == KazooState.LOST and self.held:
            self.lost = True

    def _acquire(self, recipe, **how):
        if self.lost:
            return LOST
        try:
            if not recipe.acquire(**how):
                return HELD
        except LockTimeout:  # it has waited for the one before
            return HELD
        except CancelledError:
            return CANCELLED
        self.held = recipe
        return OK

    def lock(self, limit, request):
        self.waiting[request] = recipe = self.client.Lock(self.path)
        try:
            return self._acquire(recipe, timeout=limit)
        finally:
            del self.waiting[request]

    def try_(self):
        return self._acquire(self.client.Lock(self.path), blocking=False)

    def cancel(self, request):
        recipe = self.waiting.get(request)
        if recipe is not None:
            recipe.cancel()

    def unlock(self):
        held, lost = self.held, self.lost
        self.held, self.lost = None, False
        if held is None:
            return NOT_HELD
        held.release()
        return LOST if lost else OK

    def close(self):
        self.client.remove_listener(self._listen)


serve("kazoo " + __version__, ["lock", "try", "unlock", "cancel", "share"], Locker)
