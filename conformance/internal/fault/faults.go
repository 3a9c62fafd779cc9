// Package fault injects faults into the network of a party, its process or the servers, and checks
// that they take effect.
package fault

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/engine"
	"github.com/go-locker/locker/conformance/internal/harness"
	"github.com/go-locker/locker/conformance/internal/party"
	"github.com/go-locker/locker/internal/history"
)

// Stop injects StopServer until resume is called or the trial ends. It returns once the backend is
// silent.
func Stop(e *party.Env) (resume func()) { return hushed(e, "StopServer", e.Harness.Faults.StopServer) }

// Kill injects KillServer until restart is called or the trial ends. It returns once the backend is
// down.
func Kill(e *party.Env) (restart func()) { return hushed(e, "KillServer", e.Harness.Faults.KillServer) }

// Wipe injects WipeServer until restart is called or the trial ends. restart checks that the data
// are gone.
func Wipe(e *party.Env) (restart func()) {
	k := HoldEarlier(e)
	undo := hushed(e, "WipeServer", e.Harness.Faults.WipeServer)
	return func() {
		undo()
		e.Relies(k.Gone())
	}
}

func hushed(e *party.Env, field string, fault func(harness.TB) (undo func())) (undo func()) {
	return recorded(e, history.Fault{Kind: field, What: field, Mutes: history.Everyone}, func() func() {
		_, mend, err := Hush(e, field, fault)
		e.Relies(err)
		return mend
	})
}

// recorded injects a fault whose begin and end are recorded.
func recorded(e *party.Env, f history.Fault, inject func() (undo func())) (undo func()) {
	f.From = e.Record.Time()
	mend := inject()
	f.Set = e.Record.Time()
	return func() {
		f.Undone = e.Record.Time()
		mend()
		e.Record.FaultOver(f)
	}
}

// EarlierHold is a hold from before WipeServer, which a backend that lost its data cannot know.
type EarlierHold struct {
	holder, other *party.Party
	until         time.Time
}

// HoldEarlier takes an EarlierHold.
func HoldEarlier(e *party.Env) *EarlierHold {
	name, ttl := e.Name(), 2*e.Long // servers may take a while to come back
	k := &EarlierHold{e.Party("a holder", name, ttl), e.Party("another", name, ttl), time.Now().Add(ttl)}
	k.holder.Take()
	return k
}

// Gone returns an error if the backend still knows the hold: another party cannot get the lock, and
// Extend returns nil. The other party tries first, because a broken Extend may create a hold.
func (k *EarlierHold) Gone() error {
	// Clients may have to reconnect.
	for end := time.Now().Add(k.other.Env.Prompt); ; time.Sleep(party.Settle / 10) {
		if k.other.LockWithin(2*k.other.Env.Settle()) == nil {
			_ = k.other.Unlock()
			return nil
		}
		switch err := k.holder.Extend(); {
		case !time.Now().Before(k.until), errors.Is(err, locker.ErrLost):
			return nil
		case err == nil:
			_ = k.holder.Unlock()
			return engine.Idle("WipeServer", "after the restart a hold from before is extended, and excludes another")
		case time.Now().After(end):
			return nil // inconclusive
		}
	}
}

// Revoke ends the holds of names by Faults.Revoke, and checks on another name that this takes
// effect.
func Revoke(e *party.Env, names ...string) {
	for _, name := range names {
		e.Harness.Faults.Revoke(e, name)
	}
	_, err := Revocation(e)
	e.Relies(err)
}

// Revocation revokes a hold of its own. refused is the error of another party's Lock after that,
// for which the Locker may be to blame; err says that the fault did nothing.
func Revocation(e *party.Env) (refused, err error) {
	name := e.Name()
	a, b := e.Party("a holder", name, e.Long), e.Party("another", name, e.Long)
	a.Take()
	e.Harness.Faults.Revoke(e, name)
	if refused = b.LockWithin(e.Prompt); refused != nil && a.Extend() == nil {
		err = engine.Idle("Revoke", "%v after it was told to end the hold of %q another cannot "+
			"get the lock, and the holder's Extend says nil", e.Prompt, name)
	}
	_ = b.Unlock()
	_ = a.Unlock()
	return refused, err
}

// Refuse has the servers refuse requests, and calls do once a Lock was refused. It returns an error
// if they still grant a free lock.
func Refuse(e *party.Env, do func()) error {
	a, b := e.Rivals(e.Long, e.Long)
	a.Connect()
	f := history.Fault{Kind: "Refuse", What: "requests refused", From: e.Record.Time()}
	accept := Harm(e, e.Harness.Faults.Refuse)
	start, clean := time.Now(), true
	err := a.LockWithin(e.Settle())
	// The fault may take effect a moment later.
	for ; err == nil && time.Since(start) < e.Prompt; err = a.LockWithin(e.Settle()) {
		clean = a.Unlock() == nil && clean
	}
	do()
	accept()
	e.Record.FaultOver(f)
	switch {
	case err == nil:
		a.Excludes(b, e.Settle())
		return engine.Idle("Refuse", "%v after it returned, a Locker still gets a free lock", e.Prompt)
	case errors.Is(err, locker.ErrHeld) && clean:
		e.Failf("A's Lock, when nobody had the lock and the server refused all requests: %v; want no ErrHeld", err)
	}
	b.AfterOutage("the server takes requests again, and nobody has the lock")
	_ = b.Unlock()
	return nil
}

// prepareFailOver is FailOver without the check.
func prepareFailOver(e *party.Env) (fail func()) {
	return recorded(e, history.Fault{Kind: "FailOver", What: "failover"}, func() func() { return e.Harness.Faults.FailOver(e) })
}

// FailOver prepares a failover by Faults.FailOver. fail triggers it and, if Through reveals the
// servers' addresses, checks that a server went down or came up.
func FailOver(e *party.Env) (fail func()) {
	if e.Harness.Faults.Through == nil {
		return prepareFailOver(e)
	}
	p, w := Link(e.Story(), "a probe", e.Name(), e.Long)
	p.Take()
	_ = p.Unlock()
	takeOver := prepareFailOver(e)
	return func() {
		changed := watchServers(w.Addresses())
		takeOver()
		if !changed(e.Prompt) {
			e.Relies(engine.Idle("FailOver", "no connection to any of the servers at %v broke, and none that was down is up", w.Addresses()))
		}
	}
}

// watchServers connects to the servers. changed reports whether a connection breaks within the
// given time, or a server that was down accepts connections.
func watchServers(addresses []string) (changed func(within time.Duration) bool) {
	conns := map[string]net.Conn{}
	for _, address := range addresses {
		conn, err := net.DialTimeout("tcp", address, party.Settle)
		if err != nil {
			conn = nil
		}
		conns[address] = conn
	}
	return func(within time.Duration) bool {
		seen := make(chan bool, len(conns))
		for address, conn := range conns {
			go func() {
				if conn == nil {
					seen <- accepts(address)
					return
				}
				defer func() { _ = conn.Close() }()
				seen <- hangsUp(conn, within)
			}()
		}
		for range conns {
			if <-seen {
				return true
			}
		}
		return len(conns) == 0
	}
}

func accepts(address string) bool {
	conn, err := net.DialTimeout("tcp", address, party.Settle)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// hangsUp reports whether the peer ends conn in time.
func hangsUp(conn net.Conn, within time.Duration) bool {
	_ = conn.SetReadDeadline(time.Now().Add(within))
	for some := make([]byte, 512); ; {
		if _, err := conn.Read(some); err != nil {
			return !errors.Is(err, os.ErrDeadlineExceeded)
		}
	}
}

// Passes returns an error if a Locker of Through bypasses the suite's proxies: if it does not call
// via, or locks and unlocks while the proxies hold back all traffic.
func Passes(e *party.Env) error {
	a, w := Link(e, "a probe", e.Name(), e.Long)
	a.Take()
	_ = a.Unlock()
	if len(w.Addresses()) == 0 {
		return engine.Idle("Through", "a Locker was locked, and nobody had called via")
	}
	ctx, cancel := context.WithCancel(e.Context())
	defer cancel()
	defer w.Mend()
	w.Hold()
	p, done := &probe{Party: a}, make(chan error, 1)
	e.Spawn(func() { done <- p.round(ctx) })
	for end := time.Now().Add(e.Prompt); !w.Held() && time.Now().Before(end); {
		select {
		case err := <-done:
			if err == nil {
				return engine.Idle("Through", "a Locker locks and unlocks though the proxies at its addresses keep back all that is sent")
			}
			return nil
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// MoveClock injects Faults.MoveClock until back is called or the trial ends.
func MoveClock(e *party.Env, d time.Duration) (back func()) {
	from := e.Record.Time()
	back = Harm(e, func(t harness.TB) func() { return e.Harness.Faults.MoveClock(t, d) })
	e.Record.FaultOver(history.Fault{Kind: "MoveClock", What: fmt.Sprintf("clock moved by %v", d), From: from})
	return back
}

// Linked makes a party with its own Wire. The first call in a trial checks that Through takes
// effect.
func Linked(e *party.Env, who, name string, ttl time.Duration) (*party.Party, *Wire) {
	if !e.Asked {
		e.Asked = true
		e.Relies(Passes(e.Story()))
	}
	return Link(e, who, name, ttl)
}

// probe checks whether a backend answers. It is made before the fault, because New may need the
// backend.
type probe struct {
	*party.Party
	limit time.Duration // without an answer for so long the backend counts as silent
}

// newProbe makes a probe with its own name, and measures the latency of the backend.
func newProbe(e *party.Env) *probe {
	p := &probe{Party: e.Party("a probe", e.Name(), e.Long)}
	start := time.Now()
	p.Take()
	_ = p.Unlock()
	// Holds of one TTL have to outlast the limit.
	p.limit = min(max(5*time.Since(start), party.Settle), e.TTL/3)
	return p
}

// round locks and unlocks. Lock alone is not enough: a broken Locker may take an error for a
// success.
func (p *probe) round(ctx context.Context) error {
	const never = time.Hour
	err := p.Call("Lock", never, func() error { return p.Locker.Lock(ctx) })
	if err == nil {
		err = p.Call("Unlock", never, func() error { return p.Locker.Unlock(ctx) })
	}
	return err
}

// Hush injects a fault that silences the servers, and returns once the backend is silent. A probe
// then checks that it stays silent until undo is called or the trial ends.
func Hush(e *party.Env, field string, fault func(harness.TB) (undo func())) (s *party.Silence, undo func(), err error) {
	p := newProbe(e)
	ctx, cancel := context.WithCancel(e.Context())
	s = &party.Silence{Field: field, Broken: make(chan struct{})}
	undo = Harm(e, func(t harness.TB) func() {
		mend := fault(t)
		return func() {
			s.Over.Store(true)
			cancel()
			mend()
		}
	})
	e.Silence.Store(s)
	return s, undo, p.silent(ctx, s)
}

// silent waits until the backend stops answering. A fault, such as SIGSTOP, may take effect a
// moment after it has returned.
func (p *probe) silent(ctx context.Context, s *party.Silence) error {
	var answers atomic.Int64
	refused := make(chan struct{})
	p.Env.Spawn(func() {
		refuse := sync.OnceFunc(func() { close(refused) })
		for late := 0; ctx.Err() == nil; time.Sleep(party.Settle / 20) {
			switch err := p.round(ctx); {
			case err != nil:
				s.Began.Store(true)
				refuse()
			case s.Over.Load():
			case s.Began.Load():
				if late++; late == 2 { // the first may have been in flight
					close(s.Broken)
				}
			default:
				answers.Add(1)
			}
		}
	})
	start := time.Now()
	for before := int64(0); ; before = answers.Load() {
		select {
		case <-refused:
			return nil
		case <-time.After(p.limit):
		}
		if answers.Load() == before {
			s.Began.Store(true)
			return nil
		}
		if took := time.Since(start); took > p.Env.Prompt {
			return engine.Idle(s.Field, "%v after it returned, a Locker still locks and unlocks", took.Round(time.Millisecond))
		}
	}
}

// Harm injects a fault until undo is called or the trial ends.
func Harm(e *party.Env, fault func(harness.TB) (undo func())) (undo func()) {
	mend := fault(e)
	var once sync.Once // not OnceFunc, which panics if mend calls Fatalf
	undo = func() { once.Do(mend) }
	e.Cleanup(undo)
	return undo
}
