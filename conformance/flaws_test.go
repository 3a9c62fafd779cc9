package conformance_test

import (
	"context"
	"crypto/sha512"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/driver"
	memorylock "github.com/go-locker/locker/memory"
)

// flawMutants are locks whose flaw shows only after a long time, to many, or for few names.
func flawMutants() []mutant {
	const (
		collide = "different names never collide"
		long    = "half a minute ends no hold that is extended, no wait, and no order of tokens"
		ttls    = "a long TTL is kept as it is"
		renewed = "a renewed hold outlives its TTL"
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
		wrapping("TTL in milliseconds of 32 bits, with a sign", ttls, func(ttl time.Duration) time.Duration {
			return time.Duration(int32(ttl.Milliseconds())) * time.Millisecond
		}),
		wrapping("TTL in milliseconds of 32 bits", ttls, func(ttl time.Duration) time.Duration {
			return time.Duration(uint32(ttl.Milliseconds())) * time.Millisecond
		}),
		wrapping("TTL in microseconds of 32 bits", ttls, func(ttl time.Duration) time.Duration {
			return time.Duration(uint32(ttl.Microseconds())) * time.Microsecond
		}),
		renewing("renewal ends after ten times", renewed, func(_ bool, _, extend int64) bool { return extend <= 10 }),
		renewing("renews the first hold alone", renewed, func(_ bool, hold, _ int64) bool { return hold == 1 }),
		renewing("renews nothing that TryLock took", renewed, func(try bool, _, _ int64) bool { return !try }),
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
		locks("Lock tries 32 times, then says ErrHeld", long, func(p *patched, _ *world) {
			p.lock = func(ctx context.Context) error {
				err := p.Mutex.TryLock(ctx)
				for n := 1; n < 32 && errors.Is(err, locker.ErrHeld) && ctx.Err() == nil; n++ {
					time.Sleep(200 * time.Millisecond)
					err = p.Mutex.TryLock(ctx)
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
		{"a stale lock file is looked at, removed and made again", "those who find an expired hold exclude one another", lockFiles},
	}
}

// hashed is a lock that knows a name by what of makes of it.
func hashed(what string, of func(name string) any) mutant {
	return mutant{"a name is known by " + what, "different names never collide", func() conformance.Harness {
		return renamed(func(conformance.TB, *patched, *world) {}, func(name string) string { return fmt.Sprint(of(name)) })
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

// wrapping is a lock that counts TTLs in too few bits.
func wrapping(flaw, killer string, of func(ttl time.Duration) time.Duration) mutant {
	return mutant{flaw, killer, func() conformance.Harness {
		h := memory()
		inner := h.New
		h.New = func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
			return inner(t, name, max(of(ttl), memoryTTL))
		}
		return h
	}}
}

// renewing is a lock that renews only if keeps says so, of how its hold was taken, which hold of its
// client it is, and how often it was renewed, from 1.
func renewing(flaw, killer string, keeps func(try bool, hold, extend int64) bool) mutant {
	return mutant{flaw, killer, func() conformance.Harness {
		h, in := memory(), memorylock.InSpace(space())
		h.Client = func(t conformance.TB, ttl time.Duration, renew bool) func(string) locker.Locker {
			c, err := locker.New(&watchdog{Driver: memorylock.NewDriver(in), keeps: keeps}, locker.WithTTL(ttl))
			if err != nil {
				t.Fatalf("new: %v", err)
			}
			t.Cleanup(func() { _ = c.Close() })
			return func(name string) locker.Locker { return c.Mutex(name) }
		}
		h.New = func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
			c, err := locker.New(memorylock.NewDriver(in), locker.WithTTL(ttl), locker.WithoutRenewal())
			if err != nil {
				t.Fatalf("new: %v", err)
			}
			t.Cleanup(func() { _ = c.Close() })
			return c.Mutex(name)
		}
		return h
	}}
}

type watchdog struct {
	driver.Driver
	keeps func(try bool, hold, extend int64) bool
	holds atomic.Int64
}

func (d *watchdog) Claim(req driver.Request) driver.Claim {
	return &watched{Claim: d.Driver.Claim(req), d: d, try: req.Wake == nil}
}

type watched struct {
	driver.Claim
	d             *watchdog
	try           bool
	hold, extends atomic.Int64
}

func (c *watched) Ask(ctx context.Context) (time.Duration, error) {
	next, err := c.Claim.Ask(ctx)
	if err == nil {
		c.hold.Store(c.d.holds.Add(1))
	}
	return next, err
}

// Extend says nil in any case, and Validity believes it.
func (c *watched) Extend(ctx context.Context, ttl time.Duration) error {
	if c.d.keeps(c.try, c.hold.Load(), c.extends.Add(1)) {
		return c.Claim.Extend(ctx, ttl)
	}
	return nil
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

// lockFiles are locks in a directory, without fencing: an expired file is removed by its name.
func lockFiles() conformance.Harness {
	dir := &files{all: map[string]file{}}
	return conformance.Harness{TTL: memoryTTL, Promises: locker.Guarantees{}, New: func(_ conformance.TB, name string, ttl time.Duration) locker.Locker {
		return &fileLock{dir: dir, name: name, ttl: ttl}
	}}
}

type file struct {
	owner *fileLock
	until time.Time
}

type files struct {
	mu  sync.Mutex
	all map[string]file
}

// do is one call of the system.
func (d *files) do(call func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	call()
}

type fileLock struct {
	dir  *files
	name string
	ttl  time.Duration
}

func (l *fileLock) Lock(ctx context.Context) error {
	for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		var stale, made bool
		l.dir.do(func() {
			f, found := l.dir.all[l.name]
			stale = found && time.Now().After(f.until)
		})
		if stale {
			time.Sleep(rand.N(time.Millisecond))
			l.dir.do(func() { delete(l.dir.all, l.name) })
		}
		l.dir.do(func() {
			if _, found := l.dir.all[l.name]; !found {
				l.dir.all[l.name], made = file{l, time.Now().Add(l.ttl)}, true
			}
		})
		if made {
			return nil
		}
	}
	return ctx.Err()
}

// whileOwn does something with l's file.
func (l *fileLock) whileOwn(call func()) error {
	err := locker.ErrLost
	l.dir.do(func() {
		if l.dir.all[l.name].owner == l {
			err = nil
			call()
		}
	})
	return err
}

func (l *fileLock) Unlock(context.Context) error {
	return l.whileOwn(func() { delete(l.dir.all, l.name) })
}

func (l *fileLock) Extend(context.Context) error {
	return l.whileOwn(func() { l.dir.all[l.name] = file{l, time.Now().Add(l.ttl)} })
}

func (*fileLock) FencingToken() uint64 { return 0 }
