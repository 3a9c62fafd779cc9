package conformance

import (
	"fmt"
	"runtime"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/stdio"
)

// rivals makes two processes that contend for one name, which nobody else uses.
func (e *env) rivals(ttlOfA, ttlOfB time.Duration) (a, b *party) {
	name := e.name()
	return e.party("A", name, ttlOfA), e.party("B", name, ttlOfB)
}

// client makes parties that share one client.
func (e *env) client(ttl time.Duration, renew bool) func(who, name string) *party {
	return e.of("Client", ttl, e.h.Client(e, ttl, renew))
}

// of makes parties by what field of the Harness has returned.
func (e *env) of(field string, ttl time.Duration, mutex func(name string) locker.Locker) func(who, name string) *party {
	return func(who, name string) *party {
		l := mutex(name)
		if l == nil {
			e.failf("the function of Harness.%s returned nil", field)
		}
		return e.using(l, who, name, ttl)
	}
}

// crowd makes many Lockers with a TTL of e.long, in two clients, or programs, if it can.
func (e *env) crowd() func(who, name string) *party {
	var of []func(who, name string) *party
	for range 2 {
		switch {
		case e.h.Program != nil:
			p := e.h.Program.StartFor(e, e.h.Program.Address)
			of = append(of, func(who, name string) *party {
				return e.using(e.h.Program.OpenIn(e, p, name, e.long, false), who, name, e.long)
			})
		case e.h.Client != nil:
			of = append(of, e.client(e.long, false))
		default:
			return func(who, name string) *party { return e.party(who, name, e.long) }
		}
	}
	next := 0
	return func(who, name string) *party {
		next++
		return of[next%len(of)](who, name)
	}
}

// offer makes a party of a name or a TTL that the harness may refuse. It returns nil and the reason
// then.
func (e *env) offer(who, name string, ttl time.Duration) (p *party, refusal string) {
	t := &refusing{env: e}
	made := make(chan locker.Locker, 1)
	go func() {
		defer close(made)
		made <- e.h.New(t, name, ttl)
	}()
	if l := <-made; l != nil {
		return e.using(l, who, name, ttl), ""
	}
	return nil, t.why
}

// refusing is a scope whose Fatalf is an answer, and ends the calling goroutine alone.
type refusing struct {
	*env
	why string
}

// Fatalf ends the calling goroutine.
func (r *refusing) Fatalf(format string, args ...any) {
	r.why = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// processes are many parties of one name, each a process of its own.
func (e *env) processes(name string) []*party {
	parties := make([]*party, contenders)
	for i := range parties {
		parties[i] = e.party(fmt.Sprintf("process %d", i+1), name, e.long)
	}
	return parties
}

// multitude is the processes, and more parties of one name.
func (e *env) multitude(name string) []*party {
	parties := e.processes(name)
	if !shares.met(e.h) {
		return parties
	}
	for of := e.crowd(); len(parties) < 5*contenders; {
		parties = append(parties, of(fmt.Sprintf("Locker %d", len(parties)+1), name))
	}
	return parties
}

// sharers are many goroutines that use p's Locker.
func sharers(p *party) []*party {
	parties := make([]*party, contenders)
	for i := range parties {
		parties[i] = p.env.using(p.l, fmt.Sprintf("goroutine %d", i+1), p.name, p.ttl)
	}
	return parties
}

// starting is called before a program is started, and begun when it has said hello. The trial's
// limit is extended by the time between the two.
func (e *env) Starting() (begun func()) {
	start, running := time.Now(), e.running.Load()
	e.trial.Allow(stdio.HelloWait)
	return func() {
		took := time.Since(start)
		e.trial.Allow(took - stdio.HelloWait)
		if running && took > promptly {
			e.pace.late.Store(int64(took))
		}
	}
}
