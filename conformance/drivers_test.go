package conformance_test

import (
	"context"
	"errors"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
)

// driven is a mutant whose Driver is altered.
func driven(flaw, killer string, change func(*driver)) mutant {
	return mutant{flaw, killer, func() conformance.Harness { return drivenBy(change) }}
}

// honest is what is left of asked's TTL since now: what the core believes.
func honest(asked locker.Request) func() time.Duration {
	until := time.Now().Add(asked.TTL)
	return func() time.Duration { return time.Until(until) }
}

func lasting(factor float64) func(*driver) {
	return func(d *driver) {
		d.request = func(req *locker.Request) { req.TTL = time.Duration(float64(req.TTL) * factor) }
		d.lease = func(l *lease, asked locker.Request) { l.validity = honest(asked) }
	}
}

func driverMutants() []mutant {
	return []mutant{
		driven("lapses one TTL late", "a waiter wakes when the holder has crashed", lasting(2)),
		driven("never lapses", "a hold lapses after its TTL", lasting(1000)),
		driven("lapses early", "a hold does not lapse before its TTL", lasting(0.6)),
		driven("Extend says nil and does nothing", "Extend keeps a hold past its TTL", func(d *driver) {
			d.lease = func(l *lease, asked locker.Request) {
				left := honest(asked)
				l.validity = func() time.Duration { return left() }
				l.extend = func(context.Context, time.Duration) error {
					left = honest(asked)
					return nil
				}
			}
		}),
		driven("renewal does nothing", "a renewed hold outlives its TTL", func(d *driver) {
			d.lease = func(l *lease, _ locker.Request) {
				l.extend = func(context.Context, time.Duration) error { return nil }
			}
		}),
	}
}

// silenced is a mutant whose Lockers are altered, at a server that can be silenced.
func silenced(flaw, killer string, change func(p *patched, g *gate)) mutant {
	return mutant{flaw, killer, func() conformance.Harness {
		g := &gate{}
		h := altered(func(_ conformance.TB, p *patched, _ *world) { change(p, g) })
		h.Faults.StopServer = func(conformance.TB) func() { return g.close() }
		return h
	}}
}

func silenceMutants() []mutant {
	first := func(g *gate, f func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			_ = g.pass(context.Background())
			return f(ctx)
		}
	}
	const lock = "Lock returns soon after ctx ends though the server is silent"
	return []mutant{
		silenced("ctx ignored while the request is out", lock, func(p *patched, g *gate) { p.lock = first(g, p.lock) }),
		silenced("ErrHeld in an outage", lock, func(p *patched, g *gate) {
			p.lock = func(ctx context.Context) error {
				if g.pass(ctx) != nil {
					return errors.Join(ctx.Err(), context.Cause(ctx), locker.ErrHeld)
				}
				return p.Mutex.Lock(ctx)
			}
		}),
		silenced("Unlock waits for the server", "Unlock returns by the deadline though the server is silent", func(p *patched, g *gate) {
			p.unlock = first(g, p.unlock)
		}),
		silenced("Lost waits for the server", "Lost fires in time though the server is silent", func(p *patched, g *gate) {
			p.lost = func() <-chan struct{} {
				lost := make(chan struct{})
				inner := p.Mutex.Lost()
				go func() {
					<-inner
					_ = g.pass(context.Background())
					close(lost)
				}()
				return lost
			}
		}),
		silenced("a late request is applied for good", "a Lock that ended while the server was silent leaves nothing behind", func(p *patched, g *gate) {
			p.lock = func(ctx context.Context) error {
				if g.pass(ctx) == nil {
					return p.Mutex.Lock(ctx)
				}
				go func() {
					_ = g.pass(context.Background())
					h, err := p.Mutex.Acquire(context.Background())
					for err == nil { // as if it had been set with a TTL without end
						time.Sleep(p.ttl / 4)
						err = h.Extend(context.Background())
					}
				}()
				return errors.Join(ctx.Err(), context.Cause(ctx))
			}
		}),
		renewing("renewal goes on after Unlock, for whoever holds", "renewal ends with Unlock", true),
		renewing("a renewal that ignores the answer", "a renewed hold that lapsed at a silent server stays lost", false),
	}
}

// renewing is a mutant whose holders renew what is there, whoever's it is.
func renewing(flaw, killer string, afterUnlock bool) mutant {
	return mutant{flaw, killer, func() conformance.Harness {
		h := naiveLocks("", 0)
		server := h.New(nil, "", 0).(*naive).server
		h.Client = func(t conformance.TB, ttl time.Duration, _ bool) func(string) locker.Locker {
			return func(name string) locker.Locker {
				return &blindRenewal{naive: &naive{server: server, name: name, ttl: ttl}, ctx: t.Context(), afterUnlock: afterUnlock}
			}
		}
		h.Faults.StopServer = func(conformance.TB) func() { return server.gate.close() }
		return h
	}}
}

type blindRenewal struct {
	*naive
	ctx         context.Context
	stop        context.CancelFunc
	afterUnlock bool
}

func (b *blindRenewal) Lock(ctx context.Context) error {
	if err := b.naive.Lock(ctx); err != nil {
		return err
	}
	renewing, stop := context.WithCancel(b.ctx)
	b.stop = stop
	go func() {
		for renewing.Err() == nil && b.server.gate.pass(renewing) == nil {
			b.server.prolong(b.name, b.ttl)
			b.mu.Lock()
			b.until = time.Now().Add(b.ttl)
			b.mu.Unlock()
			time.Sleep(b.ttl / 3)
		}
	}()
	return nil
}

func (b *blindRenewal) Unlock(ctx context.Context) error {
	if !b.afterUnlock {
		b.stop()
	}
	return b.naive.Unlock(ctx)
}

func naiveMutants() []mutant {
	flawed := func(flaw, killer string) mutant {
		return mutant{flaw + " (" + killer + ")", killer, func() conformance.Harness { return naiveLocks(flaw, 0) }}
	}
	const whatever = "deletes whatever is there"
	return []mutant{
		flawed(whatever, "Unlock after a take-over leaves the new hold alone"),
		flawed(whatever, "a second Unlock leaves the next hold alone"),
		flawed(whatever, "Unlock of one Locker leaves the holds of others alone"),
		flawed("looks, then deletes", "an Unlock overtaken by the lapse leaves the new hold alone"),
		flawed("extends whatever is there", "Extend after a take-over leaves the new hold alone"),
		flawed("owner set before the take", "a goroutine that waits does not disturb the hold of another on the same Locker"),
	}
}
