// Package names has the scenarios of names: which are distinct, and which are valid.
package names

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/contention"
	"github.com/go-locker/locker/conformance/internal/need"
	"github.com/go-locker/locker/conformance/internal/party"
	"github.com/go-locker/locker/conformance/internal/power"
	"github.com/go-locker/locker/conformance/internal/remote"
	"github.com/go-locker/locker/conformance/internal/scenario"
	"github.com/go-locker/locker/conformance/internal/source"
)

// Rows are the scenarios of names.
var Rows = []scenario.Row{{
	Name:    "any name of UTF-8 can be locked",
	Promise: "A name is any non-empty UTF-8 string.",
	Needs:   []need.Need{need.Shares},
	Body: func(e *party.Env) {
		p, err := each(lockers(e, append(oddNames(e.Name()), plainOdd()...)), func(p *party.Party) error {
			if err := p.LockWithin(e.Long + e.Patience); err != nil {
				return fmt.Errorf("Lock: %w", err)
			}
			if err := p.Unlock(); err != nil && !errors.Is(err, locker.ErrLost) {
				return fmt.Errorf("Unlock: %w", err)
			}
			return nil
		})
		if err != nil {
			e.Doubtf("name %s: %v", shown(p.Name), err)
		}
	},
}, {
	Name:    "different names never collide",
	Promise: "Two different names never collide.",
	Needs:   []need.Need{need.Shares},
	Body: func(e *party.Env) {
		of, stem := e.Crowd(), e.Name()
		backwards := oddNames(e.Name())
		slices.Reverse(backwards) // one name may block another, but not the reverse
		var stories []func()
		atOnce := func(names []string, within time.Duration) {
			all := ofNames(of, names...)
			stories = append(stories, func() { allAtOnce(e, all, within) })
		}
		atOnce(oddNames(e.Name()), e.Long)
		atOnce(backwards, e.Long)
		// Without a client or program each Locker might have its own connections.
		if e.Harness.Client != nil || e.Harness.Program != nil {
			// Two of so many collide in any hash of 16 bits.
			many := make([]string, 1000)
			for i := range many {
				many[i] = fmt.Sprint(stem, "-", i)
			}
			atOnce(many, min(e.Long, contention.Time))
		}
		few := ofNames(of, oddNames(stem)[:8]...)
		stories = append(stories, func() { unlocksSome(e, few) })
		for i, names := range collisions() {
			pair := ofNames(of, names[:]...)
			stories = append(stories, func() { sameHash(e, pair[0], pair[1], hashes[i].name) })
		}
		e.Together(stories...)
	},
}, {
	Name:    "a client that locks several names at the same time holds each of them",
	Promise: "A lock is held by at most one holder, whatever else its client locks at the same time.",
	Sources: []string{source.SharedScripts},
	Shows:   locker.Exclusive,
	Needs:   []need.Need{need.Clients},
	// This tests clients that send requests for several names as one batch, and proxies between
	// them and their servers.
	Body: func(e *party.Env) {
		of, stem := e.Client(e.Long, false), e.Name()
		names, held := make([]string, 4*party.Contenders), map[string]*party.Party{}
		done := make([]<-chan error, len(names))
		for i := range names {
			names[i] = fmt.Sprint(stem, "-", i)
			held[names[i]] = of("A", names[i])
		}
		ctx, cancel := context.WithTimeout(e.Context(), e.Patience)
		defer cancel()
		for i, name := range names {
			done[i] = held[name].Start(ctx)
		}
		for i, name := range names {
			if err := <-done[i]; err != nil {
				e.Doubtf("Lock of %s, one of %d free names that A locks at once: %v", name, len(names), err)
			}
		}
		var mu sync.Mutex
		var granted []*party.Party
		_, _ = each(lockers(e, names), func(b *party.Party) error {
			if b.LockWithin(e.Settle()) == nil {
				mu.Lock()
				defer mu.Unlock()
				granted = append(granted, b)
			}
			return nil
		})
		for _, b := range granted {
			e.Logf("%d of %d names are granted to others", len(granted), len(names))
			held[b.Name].Overlap(b)
		}
		var ends []func()
		for _, p := range held {
			ends = append(ends, func() { p.Prolong(); p.Release() })
		}
		e.Together(ends...)
	},
}, {
	Name:    "two Lockers of one odd name exclude each other",
	Promise: "Lockers of one name contend, whatever characters it has.",
	Body: func(e *party.Env) {
		u := e.Name()
		for _, name := range []string{"/" + u + " ", "{" + u + "\x00\n", u + strings.Repeat("e\u0301", 1300)} {
			a, b := e.Party("A", name, e.Long), e.Party("B", name, e.Long)
			a.Take()
			if err := b.LockWithin(e.Settle()); err == nil {
				e.Logf("name %s", shown(name))
				a.Overlap(b)
			}
			a.Release()
			b.Promptly("A has unlocked " + shown(name)).Release()
		}
	},
}, {
	Name:    "an empty name is refused",
	Promise: "A name is any non-empty UTF-8 string; bad input is an error.",
	Body:    func(e *party.Env) { refuses(e, "") },
}, {
	Name:    "a name that is not UTF-8 is refused",
	Promise: "A name is any non-empty UTF-8 string; bad input is an error.",
	Needs:   []need.Need{need.InGo},
	Body: func(e *party.Env) {
		for _, name := range []string{"\xff", e.Name() + "\xc3", "\xed\xa0\x80" + e.Name()} {
			refuses(e, name)
		}
	},
}, {
	Name:    "Name is the name of the lock",
	Promise: "Name is the name that the Locker was made with.",
	Body: func(e *party.Env) {
		for _, name := range oddNames(e.Name())[:30] {
			n, ok := e.Party("A", name, e.TTL).Locker.(power.Namer)
			if !ok {
				e.Skip("the Locker has no Name")
			}
			if got := n.Name(); got != name {
				e.Failf("Name of %s is %s", shown(name), shown(got))
			}
		}
	},
}}

// oddNames derives names that are easily mistaken for one another from a unique one.
func oddNames(u string) []string {
	names := []string{
		u, u + "a", u + "ab", // one is the other's prefix
		strings.ToUpper(u), "a" + u, "A" + u, // case
		" " + u, u + " ", "  " + u, u + "\t", "\t" + u, u + "\n", u + "\r\n", u + "\u00a0", u + " a", u + "  a",
		"/" + u, u + "/", u + "//", "//" + u, u + "/a", u + "//a", u + "/./a", u + "/b/../a", "./" + u, "../" + u,
		u + "%2Fa", u + "%2fa", u + "%252Fa", u + "%", u + "+a", u + "%20a", u + "%00",
		u + ":", u + ":a", ":" + u, u + "::a", u + "%3Aa", u + ".a", u + ";a", u + "|a", u + ",a",
		"{" + u + "}", "{" + u, u + "{", u + "}", "}" + u, u + "{}", "{}" + u, "a{" + u + "}c", "{a{" + u + "}}", "{" + u + "}{a}",
		u + "*", u + "?", u + "[a]", u + "\\a", u + "\"", u + "'", u + "`", u + "$a", u + "#a", u + "&a", u + "=a", u + "~",
		u + "\x00", u + "\x00a", "\x00" + u, u + "\x01", u + "\x7f",
		u + "\u00e9", u + "e\u0301", u + "e", u + "\u0430", u + "\u00e4", // é twice, e, Cyrillic а, ä
		u + "\u00df", u + "ss", u + "\u1e9e", u + "\ufb01", u + "fi", u + "\u2126", u + "\u03a9", // ß, ss, ẞ, ﬁ, fi, ohm, omega
		u + "\u0131", u + "i", u + "\u200b", "\ufeff" + u, u + "\u200d", u + "\ufffd", u + "😀", u + "日本",
		u + ":lock", u + ":token", u + ":queue", u + "-0000000001", "lock:" + u, "lock-" + u, "_c_" + u,
	}
	for _, length := range []int{64, 128, 255, 256, 512, 1024, 4096, 1 << 16} {
		stem := u + strings.Repeat("x", length-len(u)-1)
		names = append(names, stem+"1", stem+"2")
	}
	return names
}

// plainOdd returns names that are odd by themselves, and so are not unique: others may use them.
func plainOdd() []string {
	return []string{" ", "/", "//", ".", "..", "{}", "{", "}", "}{", "\n", "\x00", ":", "%", "*", "a", "\u0301", "0", "null", "-1"}
}

func shown(name string) string {
	if len(name) > 80 {
		return fmt.Sprintf("%q… (%d bytes, ends in %q)", name[:40], len(name), name[len(name)-8:])
	}
	return fmt.Sprintf("%q", name)
}

// lockers makes parties of names, as crowd does.
func lockers(e *party.Env, names []string) []*party.Party { return ofNames(e.Crowd(), names...) }

func ofNames(of func(who, name string) *party.Party, names ...string) (all []*party.Party) {
	for _, name := range names {
		all = append(all, of("the Locker of "+shown(name), name))
	}
	return all
}

// each does something on several parties at a time. It returns the first for which that failed.
func each(all []*party.Party, do func(*party.Party) error) (*party.Party, error) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, party.Contenders)
	errs := make([]error, len(all))
	for i, p := range all {
		slots <- struct{}{}
		wg.Go(func() {
			errs[i] = do(p)
			<-slots
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			return all[i], err
		}
	}
	return nil, nil
}

// allAtOnce has each of the parties, of different names, take its lock. A slow backend grants fewer
// within the time: after e.long the first may have expired.
func allAtOnce(e *party.Env, all []*party.Party, within time.Duration) {
	var locked atomic.Int64
	until := time.Now().Add(within)
	p, err := each(all, func(p *party.Party) error {
		if time.Now().After(until) {
			return nil
		}
		locked.Add(1)
		err := p.LockWithin(e.Prompt)
		if err != nil && !errors.Is(err, locker.ErrHeld) { // a slow answer is no collision
			err = p.LockWithin(e.Prompt)
		}
		return err
	})
	if err != nil {
		e.Doubtf("name %s: Lock, when only other names are locked: %v; in its way is %s", shown(p.Name), err, inTheWay(p, all))
	}
	e.Logf("%d names of %d were locked at once", locked.Load(), len(all))
}

// inTheWay returns the name of the first of the others that cannot be locked beside p, if it finds
// one in time.
func inTheWay(p *party.Party, others []*party.Party) string {
	_, _ = each(others, func(o *party.Party) error { _ = o.Unlock(); return nil })
	if p.LockWithin(p.Env.Prompt) == nil {
		for end := time.Now().Add(2 * p.Env.Prompt); len(others) > 0 && time.Now().Before(end); others = others[1:] {
			if o := others[0]; o != p && o.LockWithin(p.Env.Settle()) != nil {
				return shown(o.Name)
			}
		}
	}
	return "one that is not known"
}

// unlocksSome has every second party unlock, and checks that the others keep their holds.
func unlocksSome(e *party.Env, all []*party.Party) {
	for _, p := range all {
		p.Take()
	}
	for i := 0; i < len(all); i += 2 {
		all[i].Drop()
		for j := 1; j < len(all); j += 2 {
			until := all[j].Until()
			if err := all[j].Extend(); err != nil && !errors.Is(err, remote.ErrMissing) && time.Now().Before(until) {
				e.Doubtf("name %s: Extend says %v; the last Unlock was of %s", shown(all[j].Name), err, shown(all[i].Name))
			}
		}
	}
}

// sameHash has b lock a name with the same hash as the name that a holds. a blocks b only if b gets
// its lock after a's Unlock, not before: leftovers of an earlier trial may block it, too.
func sameHash(e *party.Env, a, b *party.Party, hash string) {
	a.Take()
	err := b.LockWithin(e.Prompt)
	a.Drop()
	if errors.Is(err, locker.ErrHeld) && b.LockWithin(e.Settle()) == nil {
		e.Doubtf("name %s: Lock: %v; in its way was %s, which has the same hash, by %s", shown(b.Name), err, shown(a.Name), hash)
	}
}

// refuses ends the trial if a name that is not valid can be locked. The harness may refuse it, too.
func refuses(e *party.Env, name string) {
	p, _ := e.Offer("A", name, e.Long)
	if p == nil {
		return
	}
	err := p.LockWithin(e.Prompt)
	if err == nil {
		token := p.Token()
		_ = p.Unlock()
		e.Failf("Lock of the name %q succeeded, with the token %d; want an error", name, token)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		e.Doubtf("Lock of the name %q waited until its ctx ended: %v; want an error at once", name, err)
	}
	p.WantNoToken(fmt.Sprintf("of the name %q", name))
}
