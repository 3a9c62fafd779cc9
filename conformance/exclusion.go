package conformance

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-locker/locker"
)

var exclusionRows = []row{{
	name:    "a held lock is not granted to another process",
	promise: "A lock is held by at most one holder.",
	sources: []string{goLocker},
	shows:   locker.Exclusive,
	body:    excludesProcess,
}, {
	name:    "a held lock is not granted to the same client",
	promise: "Two Lockers of one name contend whether or not they share a client, a connection or a session.",
	sources: []string{mutexSession},
	shows:   locker.Exclusive,
	needs:   []need{clients},
	body:    excludesClient,
}, {
	name:    "a Locker is not reentrant",
	promise: "A Locker is not reentrant: a second Lock of the holder waits like any other.",
	sources: []string{goLocker},
	shows:   locker.Exclusive,
	body:    notReentrant,
}, {
	name:    "many processes exclude one another",
	promise: "A lock is held by at most one holder among many processes.",
	sources: []string{goLocker},
	shows:   locker.Exclusive,
	chance:  true,
	body:    func(e *env) { e.disjoint(e.contend(e.processes(e.name()), dwell)) },
}, {
	name:    "many Lockers of one client exclude one another",
	promise: "Two Lockers of one name contend whether or not they share a client, a connection or a session.",
	sources: []string{mutexSession},
	shows:   locker.Exclusive,
	chance:  true,
	needs:   []need{clients},
	body:    manyOfOneClient,
}, {
	name:    "many goroutines on one Locker exclude one another",
	promise: "A Locker may be used by several goroutines: each Lock contends, each success needs one Unlock.",
	sources: []string{goLocker},
	shows:   locker.Exclusive,
	chance:  true,
	body:    func(e *env) { e.disjoint(e.contend(sharers(e.party("A", e.name(), e.long)), dwell)) },
}}

func excludesProcess(e *env) {
	a, b := e.rivals(e.long, e.long)
	a.take()
	a.excludes(b, e.settle())
	a.release()
	b.take()
	b.excludes(a, e.settle())
	b.release()
}

func excludesClient(e *env) {
	name := e.name()
	of := e.client(e.long, false)
	a, b := of("A", name), of("B", name)
	a.take()
	a.excludes(b, e.settle())
	a.release()
	b.take()
	b.release()
}

func notReentrant(e *env) {
	a := e.party("A", e.name(), e.long)
	a.take()
	token := a.token()
	start := time.Now()
	err := a.lockWithin(e.prompt / 4)
	switch {
	case errors.Is(err, locker.ErrLost):
		e.doubtf("A's hold was lost after %v: %v", time.Since(start), err)
	case err == nil:
		e.failf("A's second Lock succeeded while A held the lock")
	}
	a.prolong()
	if now := a.token(); now != token {
		e.failf("A's token was %d, and after a second Lock that failed (%v) it is %d", token, err, now)
	}
	a.release()
}

func manyOfOneClient(e *env) {
	name := e.name()
	of := e.client(e.long, false)
	parties := make([]*party, contenders)
	for i := range parties {
		parties[i] = of(fmt.Sprintf("Locker %d", i+1), name)
	}
	e.disjoint(e.contend(parties, dwell))
}
