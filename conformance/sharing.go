package conformance

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
)

var sharingRows = []row{{
	name:    "a goroutine that waits does not disturb the hold of another on the same Locker",
	promise: "A Locker may be used by several goroutines: one that waits does not affect the hold of another.",
	sources: []string{redissonToken},
	body:    waitDoesNotDisturb,
}, {
	name:    "a counter guarded by one Locker loses no update",
	promise: "A Locker may be used by several goroutines, one of which holds at a time.",
	sources: []string{goLocker},
	chance:  true,
	body:    counter,
}, {
	name:    "nothing is held after many goroutines have locked and unlocked",
	promise: "Each success of Lock needs one Unlock, and no more.",
	sources: []string{goLocker},
	chance:  true,
	body:    nothingHeldAfterMany,
}, {
	name:    "a Locker can be asked while others use it",
	promise: "A Locker may be used by several goroutines: one may call FencingToken and Extend while others lock and unlock.",
	sources: []string{goLocker},
	chance:  true,
	body:    askedMeanwhile,
}}

func waitDoesNotDisturb(e *env) {
	name := e.name()
	a, c := e.party("A", name, e.long), e.party("C", name, e.long)
	a.take()
	token := a.token()
	other := sharers(a)[1]
	ctx, cancel := context.WithCancel(e.Context())
	defer cancel()
	done := other.start(ctx)
	select {
	case err := <-done:
		e.early(a, other, err)
	case <-time.After(e.settle()):
	}
	a.prolong()
	if now := a.token(); now != token {
		a.prolong() // is it lost?
		e.failf("A's token was %d, and while another goroutine waits in Lock it is %d", token, now)
	}
	cancel()
	e.gone(other, done)
	a.prolong()
	a.excludes(c, e.settle())
	a.release()
	c.promptly("A has unlocked, the other goroutine gave up")
	c.release()
}

// counter reads, lets others run, and writes: two who hold at once lose an update. It is atomic only
// so that a race detector does not end the test before the suite has had its say.
func counter(e *env) {
	var n atomic.Int64
	intervals := e.contend(sharers(e.party("A", e.name(), e.long)), func() {
		was := n.Load()
		linger()
		n.Store(was + 1)
	})
	if got, want := n.Load(), len(intervals); got != int64(want) {
		e.disjoint(intervals)
		if lost := losses(intervals); lost > 0 {
			e.doubtf("%d holds, of which %d were lost, made the counter %d", want, lost, got)
		}
		e.failf("%d holds, none of them lost, made the counter %d", want, got)
	}
}

func nothingHeldAfterMany(e *env) {
	a, b := e.rivals(e.long, e.long)
	e.contend(sharers(a), func() {})
	a.wantNoToken("when each Lock was unlocked")
	a.want("Unlock, when each Lock was unlocked", a.unlock(), locker.ErrNotHeld)
	a.want("Extend, when each Lock was unlocked", a.extend(), locker.ErrNotHeld)
	b.promptly("each Lock of A was unlocked")
	b.release()
}

// askedMeanwhile is above all for the race detector.
func askedMeanwhile(e *env) {
	a := e.party("A", e.name(), e.long)
	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			a.token()
			a.lost()
			a.deadline()
			_ = a.extend() // what is held, or nothing
			time.Sleep(100 * time.Microsecond)
		}
	}()
	intervals := e.contend(sharers(a)[:3], dwell)
	close(stop)
	<-stopped
	e.disjoint(intervals)
}
