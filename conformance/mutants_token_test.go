package conformance_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/url"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
)

func tokenMutants() []mutant {
	var since atomic.Uint64
	tokens := func(change func(p *patched, w *world, token uint64) uint64) func(*patched, *world) {
		return func(p *patched, w *world) {
			token := p.token
			p.token = func() uint64 { return change(p, w, token()) }
		}
	}
	constant := tokens(func(_ *patched, _ *world, token uint64) uint64 { return min(token, 42) })
	return []mutant{
		locks("a constant token", "tokens rise from process to process", constant),
		locks("a constant token in a client", "tokens rise over the Lockers of one client", constant),
		locks("a constant token over an expiry", "tokens rise after an expiry", constant),
		locks("a token minted before the take", "tokens rise in the order of the holds, with many contending", func(p *patched, w *world) {
			token := p.token
			var minted atomic.Uint64
			before(&p.lock, func() {
				minted.Store(uint64(w.next()))
				if rand.N(10) == 0 {
					time.Sleep(rand.N(time.Millisecond))
				}
			})
			p.token = func() uint64 { return min(minted.Load(), token()) }
		}),
		locks("a new token with each Extend", "Extend does not change the token", func(p *patched, _ *world) {
			token := p.token
			var extends atomic.Uint64
			before(&p.extend, func() { extends.Add(1) })
			p.token = p.whileHeld(func() uint64 { return token() + extends.Load() })
		}),
		locks("a token after Unlock", "the token is 0 without a hold", tokens(func(p *patched, _ *world, token uint64) uint64 {
			return max(token, since.Add(1))
		})),
		locks("a token after the loss", "the token is 0 after a loss", func(p *patched, _ *world) {
			var last atomic.Uint64
			token := p.token
			after(&p.lock, func(_ context.Context, err error) error {
				last.Store(token())
				return err
			})
			p.token = last.Load
		}),
	}
}

func decoded(s string) string {
	if name, err := url.PathUnescape(s); err == nil {
		return name
	}
	return s
}

// elsewhere takes what comes while others are asked for to another server.
func elsewhere(t conformance.TB, p *patched, w *world) {
	other := open(t, space(), p.ttl, false).RWMutex(p.name())
	lock := p.lock
	underWay := func(change int) int {
		w.Lock()
		defer w.Unlock()
		w.count += change
		return w.count
	}
	p.lock = func(ctx context.Context) error {
		defer underWay(-1)
		if underWay(1) > 2 {
			p.become(other)
			return other.Lock(ctx)
		}
		time.Sleep(time.Millisecond)
		return lock(ctx)
	}
}

func nameMutants() []mutant {
	all := []mutant{}
	for flaw, rename := range map[string]func(string) string{
		"names cut at 64 bytes":     func(s string) string { return s[:min(len(s), 64)] },
		"names cut at 255 bytes":    func(s string) string { return s[:min(len(s), 255)] },
		"names cut at a NUL":        func(s string) string { return "x" + strings.Split(s+"\x00", "\x00")[0] },
		"case folded":               strings.ToLower,
		"case folded by Unicode":    func(s string) string { return strings.ToLower(strings.ToUpper(s)) },
		"space trimmed":             strings.TrimSpace,
		"paths cleaned":             path.Clean,
		"slashes trimmed":           func(s string) string { return "x" + strings.Trim(s, "/") },
		"slashes escaped, % is not": func(s string) string { return strings.ReplaceAll(s, "/", "%2F") },
		"hash tag taken for the name": func(s string) string {
			if _, rest, ok := strings.Cut(s, "{"); ok {
				if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
					return tag
				}
			}
			return s
		},
		"percent decoded":           decoded,
		"dots and slashes alike":    func(s string) string { return strings.ReplaceAll(s, ".", "/") },
		"the counter is a name too": func(s string) string { return strings.TrimSuffix(s, ":token") },
		"ligatures taken apart":     func(s string) string { return strings.ReplaceAll(s, "\ufb01", "fi") },
		"zero width dropped":        func(s string) string { return strings.ReplaceAll(s, "\u200b", "") },
		"hex of the first 32 bytes": func(s string) string { return fmt.Sprintf("%.32x", s) },
		"accents composed":          func(s string) string { return strings.ReplaceAll(s, "e\u0301", "\u00e9") },
		"all but ASCII replaced":    func(s string) string { return strings.Map(func(r rune) rune { return min(r, 0x80) }, s) },
	} {
		all = append(all, mutant{flaw, "different names never collide", func() conformance.Harness {
			return renamed(unaltered, func(name string) string {
				if name == "" {
					return name
				}
				return rename(name)
			})
		}})
	}
	return append(all,
		mutant{"names locked at once are locked where nobody looks", "a client that locks several names at the same time holds each of them", func() conformance.Harness {
			return altered(elsewhere)
		}},
		locks("names with a brace refused", "any name of UTF-8 can be locked", func(p *patched, _ *world) {
			lock := p.lock
			p.lock = func(ctx context.Context) error {
				if strings.ContainsAny(p.name(), "{}") {
					return errors.New("illegal character")
				}
				return lock(ctx)
			}
		}),
		mutant{"long names made unique", "two Lockers of one odd name exclude each other", func() conformance.Harness {
			var n atomic.Int64
			return renamed(unaltered, func(name string) string {
				if len(name) > 1024 {
					return fmt.Sprint(n.Add(1))
				}
				return name
			})
		}},
		mutant{"the empty name is a name", "an empty name is refused", func() conformance.Harness {
			return renamed(unaltered, func(name string) string { return "x" + name })
		}},
		mutant{"invalid UTF-8 repaired", "a name that is not UTF-8 is refused", func() conformance.Harness {
			return renamed(unaltered, func(name string) string { return strings.ToValidUTF8(name, "?") })
		}},
		locks("Name has a prefix", "Name is the name of the lock", func(p *patched, _ *world) {
			name := p.name()
			p.name = func() string { return "locker:" + name }
		}),
	)
}

const oneHistory = "a random history is that of one lock"

// evidenceOf has the histories of mutants go when the test does.
func evidenceOf(t *testing.T) {
	t.Helper()
	dir := flag.Lookup("conformance.dir")
	before := dir.Value.String()
	require.NoError(t, dir.Value.Set(t.TempDir()))
	t.Cleanup(func() { _ = dir.Value.Set(before) })
}

// manyClients reports whether a task is one of many clients, of which a machine does only so many
// at a time: where all is slow a fault finds nobody who would outlast it.
func manyClients(t task) bool {
	return strings.Contains(t.scenario.Name, "random history") || strings.Contains(t.scenario.Name, "guarded by tokens")
}

func historyMutants() []mutant {
	return []mutant{
		locks("no exclusion one time in two hundred, in a history", oneHistory, phantom),
		locks("Extend revives, in a history", oneHistory, revives),
		locks("Unlock after the loss says nil, in a history", oneHistory, unlockReturnsNil(locker.ErrLost)),
		locks("Unlock of nothing says nil, in a history", oneHistory, unlockReturnsNil(locker.ErrNotHeld)),
		locks("a hold that is believed for a tenth longer than it lasts", oneHistory, overdue(1.1)),
	}
}

func counterMutants() []mutant {
	const late, counter = "a late write with the token of a lost hold is refused", "a counter guarded by tokens loses no update"
	constant := func(p *patched, _ *world) { p.token = func() uint64 { return 42 } }
	return []mutant{
		locks("a constant token, and a late write", late, constant),
		locks("a constant token, and a counter", counter, constant),
		locks("a token minted when it is asked for", late, func(p *patched, w *world) {
			p.token = func() uint64 { return uint64(w.next()) }
		}),
		locks("a token minted by a second command after the take", counter, mintedAfter),
	}
}

// mintedAfter has an unlucky pause now and then between the take and the token: until another has
// taken over, whose token then is smaller.
func mintedAfter(p *patched, w *world) {
	lock := p.lock
	var minted atomic.Uint64
	p.lock = func(ctx context.Context) error {
		if err := lock(ctx); err != nil {
			return err
		}
		if rand.N(20) == 0 {
			before := w.last()
			for end := time.Now().Add(2 * p.ttl); w.last() == before && time.Now().Before(end); {
				time.Sleep(50 * time.Microsecond)
			}
		}
		minted.Store(uint64(w.next()))
		return nil
	}
	p.token = minted.Load
}

// last is what next returned.
func (w *world) last() int {
	w.Lock()
	defer w.Unlock()
	return w.count
}

func revives(p *patched, _ *world) { p.anew(&p.extend, p.Mutex.TryLock) }

// overdue believes in a hold for so much longer than it lasts.
func overdue(factor float64) func(p *patched, _ *world) {
	return func(p *patched, _ *world) {
		token := p.token
		var last atomic.Uint64
		var until atomic.Int64
		for _, m := range []*method{&p.lock, &p.tryLock, &p.rlock, &p.extend} {
			inner := *m
			*m = func(ctx context.Context) error {
				before := time.Now()
				err := inner(ctx)
				if err == nil {
					last.Store(token())
					until.Store(before.Add(time.Duration(factor * float64(p.ttl))).UnixNano())
				}
				return err
			}
		}
		p.lost = func() <-chan struct{} { return nil }
		p.token = func() uint64 {
			if time.Now().UnixNano() < until.Load() {
				return last.Load()
			}
			return 0
		}
		before(&p.unlock, func() { until.Store(0) })
	}
}

// unlockReturnsNil has Unlock return nil where it should return an error.
func unlockReturnsNil(of error) func(*patched, *world) {
	return func(p *patched, _ *world) { instead(&p.unlock, of, nil) }
}
