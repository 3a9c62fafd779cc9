package conformance

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
	"github.com/go-locker/locker/conformance/internal/power"
	"github.com/go-locker/locker/conformance/internal/remote"
)

var nameRows = []row{{
	name:    "any name of UTF-8 can be locked",
	promise: "A name is any non-empty UTF-8 string.",
	sources: []string{contract},
	needs:   []need{shares},
	body:    anyName,
}, {
	name:    "different names never collide",
	promise: "Two different names never collide.",
	sources: []string{contract},
	needs:   []need{shares},
	body:    namesDoNotCollide,
}, {
	name:    "a client that locks several names at the same time holds each of them",
	promise: "A lock is held by at most one holder, whatever else its client locks at the same time.",
	sources: []string{sharedScripts},
	shows:   locker.Exclusive,
	needs:   []need{clients},
	body:    namesAtOnce,
}, {
	name:    "two Lockers of one odd name exclude each other",
	promise: "Lockers of one name contend, whatever characters it has.",
	sources: []string{contract},
	body:    oddNamesContend,
}, {
	name:    "an empty name is refused",
	promise: "A name is any non-empty UTF-8 string; bad input is an error.",
	sources: []string{contract},
	body:    func(e *env) { e.refuses("") },
}, {
	name:    "a name that is not UTF-8 is refused",
	promise: "A name is any non-empty UTF-8 string; bad input is an error.",
	sources: []string{contract},
	needs:   []need{inGo},
	body: func(e *env) {
		for _, name := range []string{"\xff", e.name() + "\xc3", "\xed\xa0\x80" + e.name()} {
			e.refuses(name)
		}
	},
}, {
	name:    "Name is the name of the lock",
	promise: "Name is the name that the Locker was made with.",
	sources: []string{contract},
	body:    tellsName,
}}

// oddNames is what makes names that are easily taken for one another out of one that nobody else uses.
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

// plainOdd are names that are odd by themselves. Others may use them: nobody is expected to be alone.
func plainOdd() []string {
	return []string{" ", "/", "//", ".", "..", "{}", "{", "}", "}{", "\n", "\x00", ":", "%", "*", "a", "\u0301", "0", "null", "-1"}
}

func shown(name string) string {
	if len(name) > 80 {
		return fmt.Sprintf("%q… (%d bytes, ends in %q)", name[:40], len(name), name[len(name)-8:])
	}
	return fmt.Sprintf("%q", name)
}

func anyName(e *env) {
	p, err := each(e.lockers(append(oddNames(e.name()), plainOdd()...)), func(p *party) error {
		if err := p.lockWithin(e.long + e.patience); err != nil {
			return fmt.Errorf("Lock: %w", err)
		}
		if err := p.unlock(); err != nil && !errors.Is(err, locker.ErrLost) {
			return fmt.Errorf("Unlock: %w", err)
		}
		return nil
	})
	if err != nil {
		e.doubtf("name %s: %v", shown(p.name), err)
	}
}

// lockers makes parties of names, as crowd does.
func (e *env) lockers(names []string) []*party { return ofNames(e.crowd(), names...) }

func ofNames(of func(who, name string) *party, names ...string) (all []*party) {
	for _, name := range names {
		all = append(all, of("the Locker of "+shown(name), name))
	}
	return all
}

// each does something on several parties at a time. It returns the first for which that failed.
func each(all []*party, do func(*party) error) (*party, error) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, contenders)
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

func namesDoNotCollide(e *env) {
	of, stem := e.crowd(), e.name()
	backwards := oddNames(e.name())
	slices.Reverse(backwards) // a name may be in the way of another, and not the other way round
	var stories []func()
	atOnce := func(names []string, within time.Duration) {
		all := ofNames(of, names...)
		stories = append(stories, func() { e.allAtOnce(all, within) })
	}
	atOnce(oddNames(e.name()), e.long)
	atOnce(backwards, e.long)
	if e.h.Client != nil || e.h.Program != nil { // else each Locker might have connections of its own
		many := make([]string, 1000) // two collide where a name is hashed to 16 bits, by whatever hash
		for i := range many {
			many[i] = fmt.Sprint(stem, "-", i)
		}
		atOnce(many, min(e.long, contentionTime))
	}
	few := ofNames(of, oddNames(stem)[:8]...)
	stories = append(stories, func() { e.unlocksSome(few) })
	for i, names := range collisions() {
		pair := ofNames(of, names[:]...)
		stories = append(stories, func() { e.sameHash(pair[0], pair[1], hashes[i].name) })
	}
	e.together(stories...)
}

// allAtOnce has each of the parties, of different names, take its lock. A slow backend grants fewer
// within the time: after e.long the first may have expired.
func (e *env) allAtOnce(all []*party, within time.Duration) {
	var locked atomic.Int64
	until := time.Now().Add(within)
	p, err := each(all, func(p *party) error {
		if time.Now().After(until) {
			return nil
		}
		locked.Add(1)
		err := p.lockWithin(e.prompt)
		if err != nil && !errors.Is(err, locker.ErrHeld) { // a slow answer is no collision
			err = p.lockWithin(e.prompt)
		}
		return err
	})
	if err != nil {
		e.doubtf("name %s: Lock, when only other names are locked: %v; in its way is %s", shown(p.name), err, p.inTheWay(all))
	}
	e.Logf("%d names of %d were locked at once", locked.Load(), len(all))
}

// inTheWay returns which of the others cannot be locked beside p, as far as can be seen in a while.
func (p *party) inTheWay(others []*party) string {
	_, _ = each(others, func(o *party) error { _ = o.unlock(); return nil })
	if p.lockWithin(p.env.prompt) == nil {
		for end := time.Now().Add(2 * p.env.prompt); len(others) > 0 && time.Now().Before(end); others = others[1:] {
			if o := others[0]; o != p && o.lockWithin(p.env.settle()) != nil {
				return shown(o.name)
			}
		}
	}
	return "one that is not known"
}

// unlocksSome has every second party unlock, and those that are left go on.
func (e *env) unlocksSome(all []*party) {
	for _, p := range all {
		p.take()
	}
	for i := 0; i < len(all); i += 2 {
		all[i].drop()
		for j := 1; j < len(all); j += 2 {
			until := all[j].until()
			if err := all[j].extend(); err != nil && !errors.Is(err, remote.ErrMissing) && time.Now().Before(until) {
				e.doubtf("name %s: Extend says %v; the last Unlock was of %s", shown(all[j].name), err, shown(all[i].name))
			}
		}
	}
}

// sameHash has a hold a name, and b take one that has the same hash. An earlier trial may have left
// something behind: a is in b's way if b gets its lock when a has unlocked, and not before.
func (e *env) sameHash(a, b *party, hash string) {
	a.take()
	err := b.lockWithin(e.prompt)
	a.drop()
	if errors.Is(err, locker.ErrHeld) && b.lockWithin(e.settle()) == nil {
		e.doubtf("name %s: Lock: %v; in its way was %s, which has the same hash, by %s", shown(b.name), err, shown(a.name), hash)
	}
}

// namesAtOnce tests clients that send requests for several names as one batch, and proxies between them and their servers.
func namesAtOnce(e *env) {
	of, stem := e.client(e.long, false), e.name()
	names, held := make([]string, 4*contenders), map[string]*party{}
	done := make([]<-chan error, len(names))
	for i := range names {
		names[i] = fmt.Sprint(stem, "-", i)
		held[names[i]] = of("A", names[i])
	}
	ctx, cancel := context.WithTimeout(e.Context(), e.patience)
	defer cancel()
	for i, name := range names {
		done[i] = held[name].start(ctx)
	}
	for i, name := range names {
		if err := <-done[i]; err != nil {
			e.doubtf("Lock of %s, one of %d free names that A locks at once: %v", name, len(names), err)
		}
	}
	var mu sync.Mutex
	var granted []*party
	_, _ = each(e.lockers(names), func(b *party) error {
		if b.lockWithin(e.settle()) == nil {
			mu.Lock()
			defer mu.Unlock()
			granted = append(granted, b)
		}
		return nil
	})
	for _, b := range granted {
		e.Logf("%d of %d names are granted to others", len(granted), len(names))
		held[b.name].overlap(b)
	}
	var ends []func()
	for _, p := range held {
		ends = append(ends, func() { p.prolong(); p.release() })
	}
	e.together(ends...)
}

func oddNamesContend(e *env) {
	u := e.name()
	for _, name := range []string{"/" + u + " ", "{" + u + "\x00\n", u + strings.Repeat("e\u0301", 1300)} {
		a, b := e.party("A", name, e.long), e.party("B", name, e.long)
		a.take()
		if err := b.lockWithin(e.settle()); err == nil {
			e.Logf("name %s", shown(name))
			a.overlap(b)
		}
		a.release()
		b.promptly("A has unlocked " + shown(name))
		b.release()
	}
}

// refuses ends the trial if a name that is not valid can be locked. The harness may refuse it, too.
func (e *env) refuses(name string) {
	p, _ := e.offer("A", name, e.long)
	if p == nil {
		return
	}
	err := p.lockWithin(e.prompt)
	if err == nil {
		token := p.token()
		_ = p.unlock()
		e.failf("Lock of the name %q succeeded, with the token %d; want an error", name, token)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		e.doubtf("Lock of the name %q waited until its ctx ended: %v; want an error at once", name, err)
	}
	if token := p.token(); token != 0 {
		e.failf("the token of the name %q is %d; want 0", name, token)
	}
}

func tellsName(e *env) {
	for _, name := range oddNames(e.name())[:30] {
		n, ok := e.party("A", name, e.ttl).l.(power.Namer)
		if !ok {
			e.skip("the Locker has no Name")
		}
		if got := n.Name(); got != name {
			e.failf("Name of %s is %s", shown(name), shown(got))
		}
	}
}
