package conformance_test

import (
	"context"
	"crypto/sha512"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
)

// flawMutants are locks whose flaw shows only after a long time, to many, or for few names.
func flawMutants() []mutant {
	const (
		collide = "different names never collide"
		long    = "half a minute ends no hold that is extended, no wait, and no order of tokens"
	)
	return []mutant{
		hashed("FNV-1a", func(name string) any { h := fnv.New32a(); _, _ = h.Write([]byte(name)); return h.Sum32() }),
		hashed("CRC-32", func(name string) any { return crc32.ChecksumIEEE([]byte(name)) }),
		hashed("Java's hashCode", func(name string) any {
			h := int32(0)
			for _, c := range []byte(name) {
				h = h*31 + int32(c)
			}
			return h
		}),
		hashed("16 bits of SHA-512", func(name string) any { h := sha512.Sum512([]byte(name)); return h[:2] }),
		hashed("its first 8,192 bytes", func(name string) any { return name[:min(len(name), 8192)] }),
		locks("Unlock releases names that begin with its own", collide, releasesPrefixes()),
		locks("more than eight waiters are more than it can count", "everyone who waits is served", overflows),
		locks("one TryLock in five says ErrHeld", "TryLock takes a free lock", func(p *patched, _ *world) {
			p.tryLock = func(ctx context.Context) error {
				if rand.N(5) == 0 {
					return locker.ErrHeld
				}
				return p.Mutex.TryLock(ctx)
			}
		}),
		locks("a hold ends a quarter of a minute after its grant, whatever extends it", long, func(p *patched, _ *world) {
			var until time.Time
			after(&p.lock, func(_ context.Context, err error) error { until = time.Now().Add(15 * time.Second); return err })
			p.extend = func(ctx context.Context) error {
				if time.Now().After(until) {
					_ = p.Mutex.Unlock(ctx)
					return nil
				}
				return p.Mutex.Extend(ctx)
			}
		}),
		locks("Lock waits ten seconds, then says ErrHeld", long, func(p *patched, _ *world) {
			p.lock = func(ctx context.Context) error {
				short, cancel := context.WithTimeout(ctx, 10*time.Second)
				defer cancel()
				err := p.Mutex.Lock(short)
				if err != nil && ctx.Err() == nil {
					return locker.ErrHeld
				}
				return err
			}
		}),
		locks("the count of tokens expires when it is idle for half a minute", long, func(p *patched, w *world) {
			after(&p.lock, func(_ context.Context, err error) error {
				w.Lock()
				defer w.Unlock()
				now := int(time.Now().Unix())
				if last := w.counts["last"]; now-last >= 30 {
					w.count = 0
				}
				w.counts["last"] = now
				w.count++
				n := uint64(w.count)
				p.token = func() uint64 { return n }
				return err
			})
		}),
		flawed("a take that is sent again counts from then", "a hold that was granted over a slow link is over before another's begins"),
		{"a downgrade is an Unlock and an RLock, and keeps the token", "a downgrade lets no writer in between", func() conformance.Harness {
			h := served("")
			inner := h.RW
			h.RW = func(t conformance.TB, name string, ttl time.Duration) conformance.RWLocker {
				p := inner(t, name, ttl).(*patched)
				p.downgrade = func(ctx context.Context) error {
					if err := p.RWMutex.Unlock(ctx); err != nil {
						return err
					}
					time.Sleep(100 * time.Microsecond)
					return p.RWMutex.RLock(ctx)
				}
				return p
			}
			return h
		}},
		flawed("looks, and takes a little later", "those who find an expired hold exclude one another"),
	}
}

// hashed is a lock that knows a name by what of makes of it.
func hashed(what string, of func(name string) any) mutant {
	return mutant{"a name is known by " + what, "different names never collide", func() conformance.Harness {
		return renamed(unaltered, func(name string) string { return fmt.Sprint(of(name)) })
	}}
}

// releasesPrefixes ends the holds of all names that begin with the one that is unlocked.
func releasesPrefixes() func(p *patched, _ *world) {
	var mu sync.Mutex
	var all []*patched
	return func(p *patched, _ *world) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, p)
		after(&p.unlock, func(ctx context.Context, err error) error {
			mu.Lock()
			defer mu.Unlock()
			for _, other := range all {
				if strings.HasPrefix(other.name(), p.name()) {
					_ = other.Mutex.Unlock(ctx)
				}
			}
			return err
		})
	}
}

// overflows grants a hold that is none to the ninth waiter.
func overflows(p *patched, w *world) {
	phantom := false
	p.lock = func(ctx context.Context) error {
		w.Lock()
		w.count++
		phantom = w.count > 9
		w.Unlock()
		defer func() {
			w.Lock()
			defer w.Unlock()
			w.count--
		}()
		if phantom {
			return nil
		}
		return p.Mutex.Lock(ctx)
	}
	p.unlock = func(ctx context.Context) error {
		if phantom {
			return nil
		}
		return p.Mutex.Unlock(ctx)
	}
}
