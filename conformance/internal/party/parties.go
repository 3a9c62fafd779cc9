package party

import (
	"fmt"
	"runtime"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/need"
	"github.com/go-locker/locker/internal/stdio"
)

// Rivals makes two processes that contend for one name, which nobody else uses.
func (e *Env) Rivals(ttlOfA, ttlOfB time.Duration) (a, b *Party) {
	name := e.Name()
	return e.Party("A", name, ttlOfA), e.Party("B", name, ttlOfB)
}

// Trio makes three processes that contend for one name. A has a TTL of ttlOfA, and the others have
// e.Long.
func (e *Env) Trio(ttlOfA time.Duration) (a, b, c *Party) {
	name := e.Name()
	return e.Party("A", name, ttlOfA), e.Party("B", name, e.Long), e.Party("C", name, e.Long)
}

// Client makes parties that share one client.
func (e *Env) Client(ttl time.Duration, renew bool) func(who, name string) *Party {
	return e.Of("Client", ttl, e.Harness.Client(Making{e}, ttl, renew))
}

// Of makes parties from mutex, which field of the Harness returned.
func (e *Env) Of(field string, ttl time.Duration, mutex func(name string) locker.Locker) func(who, name string) *Party {
	return func(who, name string) *Party {
		l := mutex(name)
		if l == nil {
			e.Failf("the function of Harness.%s returned nil", field)
		}
		return e.Using(l, who, name, ttl)
	}
}

// Crowd makes parties with a TTL of e.Long, alternately of two clients, or programs, if the Harness
// has them.
func (e *Env) Crowd() func(who, name string) *Party {
	var of []func(who, name string) *Party
	for range 2 {
		switch {
		case e.Harness.Program != nil:
			p := e.Harness.Program.StartFor(e, e.Harness.Program.Address)
			of = append(of, func(who, name string) *Party {
				return e.Using(e.Harness.Program.OpenIn(e, p, name, e.Long, false), who, name, e.Long)
			})
		case e.Harness.Client != nil:
			of = append(of, e.Client(e.Long, false))
		default:
			return func(who, name string) *Party { return e.Party(who, name, e.Long) }
		}
	}
	next := 0
	return func(who, name string) *Party {
		next++
		return of[next%len(of)](who, name)
	}
}

// Offer makes a party of a name or a TTL that the harness may refuse. It returns nil and the reason
// then.
func (e *Env) Offer(who, name string, ttl time.Duration) (p *Party, refusal string) {
	t := &Refusing{Env: e}
	made := make(chan locker.Locker, 1)
	go func() {
		defer close(made)
		made <- e.Harness.New(t, name, ttl)
	}()
	if l := <-made; l != nil {
		return e.Using(l, who, name, ttl), ""
	}
	return nil, t.why
}

// Refusing is an Env whose Fatalf records a refusal, and ends only the calling goroutine.
type Refusing struct {
	*Env
	why string
}

// Fatalf records the refusal, and ends the calling goroutine.
func (r *Refusing) Fatalf(format string, args ...any) {
	r.why = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// Contenders is the number of parties that contend for a name.
const Contenders = 8

// Processes makes Contenders parties of one name, each in a process of its own.
func (e *Env) Processes(name string) []*Party {
	parties := make([]*Party, Contenders)
	for i := range parties {
		parties[i] = e.Party(fmt.Sprintf("process %d", i+1), name, e.Long)
	}
	return parties
}

// Multitude is Processes, and more parties of the name that share clients, unless the requests of
// one program would wait for each other.
func (e *Env) Multitude(name string) []*Party {
	parties := e.Processes(name)
	if !need.Shares.Met(e.Harness) || !need.Cancels.Met(e.Harness) {
		return parties
	}
	for of := e.Crowd(); len(parties) < 5*Contenders; {
		parties = append(parties, of(fmt.Sprintf("Locker %d", len(parties)+1), name))
	}
	return parties
}

// Sharers makes Contenders parties, one for each goroutine, that share p's Locker.
func Sharers(p *Party) []*Party {
	parties := make([]*Party, Contenders)
	for i := range parties {
		parties[i] = p.Env.Using(p.Locker, fmt.Sprintf("goroutine %d", i+1), p.Name, p.TTL)
	}
	return parties
}

// Starting is called before a program is started, and begun when it has said hello. The trial's
// limit is extended by the time between the two.
func (e *Env) Starting() (begun func()) {
	start, running := time.Now(), e.running.Load()
	e.Trial.Allow(stdio.HelloWait)
	return func() {
		took := time.Since(start)
		e.Trial.Allow(took - stdio.HelloWait)
		if running && took > promptly {
			e.Pace.late.Store(int64(took))
		}
	}
}
