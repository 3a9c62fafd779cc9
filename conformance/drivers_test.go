package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/driver"
)

// driven is a mutant whose Driver is altered.
func driven(flaw, killer string, change func(*patchedDriver)) mutant {
	return mutant{flaw, killer, func() conformance.Harness { return drivenBy(change) }}
}

// honest is what is left of asked's TTL since now: what the core believes.
func honest(asked driver.Request) func() time.Duration {
	until := time.Now().Add(asked.TTL)
	return func() time.Duration { return time.Until(until) }
}

func lasting(factor float64) func(*patchedDriver) {
	return func(d *patchedDriver) {
		d.request = func(req *driver.Request) { req.TTL = time.Duration(float64(req.TTL) * factor) }
		d.lease = func(l *lease, asked driver.Request) { l.validity = honest(asked) }
	}
}

const soonAfterCtx = " returns soon after ctx ends though the server is silent"

// heedless is a mutant whose Driver ignores the context of one call.
func heedless(call, killer string) mutant {
	return driven("a Driver's "+call+" ignores contexts", killer, func(d *patchedDriver) { d.ignores = call })
}

func driverMutants() []mutant {
	return []mutant{
		driven("expires one TTL late", "a waiter wakes when the holder has crashed", lasting(2)),
		driven("never expires", "a hold expires after its TTL", lasting(1000)),
		driven("expires early", "a hold does not expire before its TTL", lasting(0.2)),
		driven("Extend says nil and does nothing", "Extend keeps a hold past its TTL", func(d *patchedDriver) {
			d.lease = func(l *lease, asked driver.Request) {
				left := honest(asked)
				l.validity = func() time.Duration { return left() }
				l.extend = func(context.Context, time.Duration) error {
					left = honest(asked)
					return nil
				}
			}
		}),
		heedless("Ask, of a Lock,", "Lock"+soonAfterCtx),
		heedless("Ask, of a TryLock,", "TryLock"+soonAfterCtx),
		heedless("Extend", "Extend"+soonAfterCtx),
		heedless("Release", "Unlock"+soonAfterCtx),
		heedless("Release", "Unlock returns by the deadline though the server is silent"),
		driven("renewal does nothing", "a renewed hold outlives its TTL", func(d *patchedDriver) {
			d.lease = func(l *lease, _ driver.Request) {
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
		silenced("FencingToken asks the server", "Lost fires in time though the server is silent", func(p *patched, g *gate) {
			token := p.token
			p.token = func() uint64 {
				_ = g.pass(context.Background())
				return token()
			}
		}),
		silenced("Lost waits for the server", "Lost fires in time though the server is silent", func(p *patched, g *gate) {
			p.lost = func() <-chan struct{} {
				lost := make(chan struct{})
				inner := of(p.Mutex, (*locker.Hold).Lost)()
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
					c, err := locker.Open(context.Background(), fmt.Sprintf("mem://%s?ttl=1m&renew=false", p.space))
					if err == nil { // as if it had been set with a TTL without end
						_ = c.Mutex(p.Mutex.Name()).Lock(context.Background())
					}
				}()
				return errors.Join(ctx.Err(), context.Cause(ctx))
			}
		}),
	}
}
