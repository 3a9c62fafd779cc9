"""The lines of docs/evidence/judge-any-language.md, for adapters in Python.

An adapter calls serve with a function that makes a Locker for a name and a TTL in seconds. A Locker has a method for each capability:
lock(limit, id) with a limit in seconds or None, try_(), unlock(), extend(), close(). They return one of the results. What they raise
is the answer "error". If the adapter claims cancel, each request has a thread of its own, and cancel(id) ends the lock of that id.
"""

import json
import sys
import threading

OK, HELD, LOST, NOT_HELD, CANCELLED = "ok", "held", "lost", "not-held", "cancelled"

_writing = threading.Lock()


def _say(**line):
    with _writing:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def _do(lockers, make, request):
    op, which = request["op"], request["locker"]
    if op == "open":
        if not request["name"]:
            raise ValueError("the name is empty")
        lockers[which] = make(request["name"], request["ttl_ms"] / 1000)
        return OK
    locker = lockers[which]
    limit = request.get("limit_ms")
    if limit == 0 and op in ("lock", "try", "extend"):
        return CANCELLED
    if op == "lock":
        return locker.lock(None if limit is None else limit / 1000, request["id"])
    if op == "try":
        return locker.try_()
    if op == "unlock":
        return locker.unlock()
    if op == "extend":
        return locker.extend()
    if op == "close":
        lockers.pop(which).close()
        return OK
    raise NotImplementedError("no such operation: " + op)


def _answer(lockers, make, request):
    try:
        _say(id=request["id"], result=_do(lockers, make, request))
    except Exception as e:
        _say(id=request["id"], result="error", error=f"{type(e).__name__}: {e}")


def serve(name, capabilities, make):
    """Answer requests until they end."""
    lockers, under_way = {}, {}
    _say(protocol=1, name=name, capabilities=capabilities)
    for line in sys.stdin:
        request = json.loads(line)
        if request["op"] == "cancel":
            locker = under_way.get(request["request"])
            if locker is not None:
                locker.cancel(request["request"])
            _say(id=request["id"], result=OK)
        elif "cancel" not in capabilities:
            _answer(lockers, make, request)
        else:
            if request["op"] == "lock":
                under_way[request["id"]] = lockers.get(request["locker"])
            threading.Thread(target=_in_thread, args=(lockers, make, request, under_way), daemon=True).start()


def _in_thread(lockers, make, request, under_way):
    try:
        _answer(lockers, make, request)
    finally:
        under_way.pop(request["id"], None)
