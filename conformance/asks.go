package conformance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/engine"
	"github.com/go-locker/locker/internal/history"
)

// stop is StopServer, until resume is called or the trial ends. It returns when the backend is silent.
func (e *env) stop() (resume func()) { return e.hushed("StopServer", e.h.Faults.StopServer) }

// kill is KillServer, until restart is called or the trial ends. It returns when the backend is down.
func (e *env) kill() (restart func()) { return e.hushed("KillServer", e.h.Faults.KillServer) }

// wipe is WipeServer, until restart is called or the trial ends. restart asks whether the data are gone.
func (e *env) wipe() (restart func()) {
	k := e.earlierHold()
	undo := e.hushed("WipeServer", e.h.Faults.WipeServer)
	return func() {
		undo()
		e.relies(k.gone())
	}
}

func (e *env) hushed(field string, fault func(TB) (undo func())) (undo func()) {
	f := history.Fault{Kind: field, What: field, From: e.record.now(), Mutes: history.Everyone}
	_, mend, err := e.hush(field, fault)
	e.relies(err)
	f.Set = e.record.now()
	return func() {
		f.Undone = e.record.now()
		mend()
		e.record.befell(f)
	}
}

// earlierHold is one that a backend cannot know of any more when it has lost its data.
type earlierHold struct {
	holder, other *party
	until         time.Time
}

func (e *env) earlierHold() *earlierHold {
	name, ttl := e.name(), 2*e.long // servers may take a while to come back
	k := &earlierHold{e.party("a holder", name, ttl), e.party("another", name, ttl), time.Now().Add(ttl)}
	k.holder.take()
	return k
}

// gone returns an error if the backend still knows the hold: another cannot get the lock, and Extend says nil. The other one is first:
// a broken Extend may make a hold where there is none.
func (k *earlierHold) gone() error {
	for end := time.Now().Add(k.other.env.prompt); ; time.Sleep(settle / 10) { // connections may have to be made anew
		if k.other.lockWithin(2*k.other.env.settle()) == nil {
			_ = k.other.unlock()
			return nil
		}
		switch err := k.holder.extend(); {
		case !time.Now().Before(k.until), errors.Is(err, locker.ErrLost):
			return nil
		case err == nil:
			_ = k.holder.unlock()
			return engine.Idle("WipeServer", "after the restart a hold from before is extended, and excludes another")
		case time.Now().After(end):
			return nil // nobody can tell
		}
	}
}

// revoke is Revoke, and asks whether it acts, of another name: what is done to this one is the scenario's.
func (e *env) revoke(names ...string) {
	for _, name := range names {
		e.h.Faults.Revoke(e, name)
	}
	_, err := e.revocation()
	e.relies(err)
}

// revocation revokes a hold. refused is why another did not get the lock then, for a reason that may be the Locker's.
func (e *env) revocation() (refused, err error) {
	name := e.name()
	a, b := e.party("a holder", name, e.long), e.party("another", name, e.long)
	a.take()
	e.h.Faults.Revoke(e, name)
	if refused = b.lockWithin(e.prompt); refused != nil && a.extend() == nil {
		err = engine.Idle("Revoke", "%v after it was told to end the hold of %q another cannot get the lock, and the holder's Extend says nil", e.prompt, name)
	}
	_ = b.unlock()
	_ = a.unlock()
	return refused, err
}

// prepareFailOver is FailOver.
func (e *env) prepareFailOver() (fail func()) {
	f := history.Fault{Kind: "FailOver", What: "failover", From: e.record.now()}
	takeOver := e.h.Faults.FailOver(e)
	f.Set = e.record.now()
	return func() {
		f.Undone = e.record.now()
		takeOver()
		e.record.befell(f)
	}
}

// failOver is FailOver. fail asks whether a server has ended, or come, if it is known where they are.
func (e *env) failOver() (fail func()) {
	if e.h.Faults.Through == nil {
		return e.prepareFailOver()
	}
	p, w := e.story().link("a probe", e.name(), e.long)
	p.take()
	_ = p.unlock()
	takeOver := e.prepareFailOver()
	return func() {
		changed := watchServers(w.addresses())
		takeOver()
		if !changed(e.prompt) {
			e.relies(engine.Idle("FailOver", "no connection to any of the servers at %v broke, and none that was down is up", w.addresses()))
		}
	}
}

// watchServers looks at servers, until changed reports whether one has ended, or come back, or does so within a while.
func watchServers(addresses []string) (changed func(within time.Duration) bool) {
	conns := map[string]net.Conn{}
	for _, address := range addresses {
		conn, err := net.DialTimeout("tcp", address, settle)
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
	conn, err := net.DialTimeout("tcp", address, settle)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// hangsUp reports whether the other side of conn ends it.
func hangsUp(conn net.Conn, within time.Duration) bool {
	_ = conn.SetReadDeadline(time.Now().Add(within))
	for some := make([]byte, 512); ; {
		if _, err := conn.Read(some); err != nil {
			return !errors.Is(err, os.ErrDeadlineExceeded)
		}
	}
}

// passes returns an error if the connections of a Locker of Through do not go through the suite's proxies: then one of them would keep back
// what it sends.
func (e *env) passes() error {
	a, w := e.link("a probe", e.name(), e.long)
	a.take()
	_ = a.unlock()
	if len(w.addresses()) == 0 {
		return engine.Idle("Through", "a Locker was locked, and nobody had called via")
	}
	ctx, cancel := context.WithCancel(e.Context())
	defer cancel()
	defer w.mend()
	w.hold()
	p, done := &probe{party: a}, make(chan error, 1)
	e.spawn(func() { done <- p.round(ctx) })
	for end := time.Now().Add(e.prompt); !w.held() && time.Now().Before(end); {
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

// moveClock is MoveClock, until back is called, or the trial ends.
func (e *env) moveClock(d time.Duration) (back func()) {
	from := e.record.now()
	back = e.harm(func(t TB) func() { return e.h.Faults.MoveClock(t, d) })
	e.record.befell(history.Fault{Kind: "MoveClock", What: fmt.Sprintf("clock moved by %v", d), From: from})
	return back
}

// linked is a party with a network of its own. The first of a trial asks whether Through acts.
func (e *env) linked(who, name string, ttl time.Duration) (*party, *wire) {
	if !e.asked {
		e.asked = true
		e.relies(e.story().passes())
	}
	return e.link(who, name, ttl)
}
