package conformance_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
)

// sharesOf are those of a name that have not expired.
func (s *server) sharesOf(name string) []entry {
	if s.flaw == "a share never expires" {
		return s.data.shares[name]
	}
	return slices.DeleteFunc(slices.Clone(s.data.shares[name]), func(e entry) bool { return s.clock() >= e.until+s.late })
}

// share does what is asked for a share. If the lock is held alone e is the hold.
func (s *server) share(q question, e entry, held bool) (a answer) {
	shares := s.sharesOf(q.Name)
	i := slices.IndexFunc(shares, func(e entry) bool { return e.owner == q.Owner })
	switch {
	case q.Op == "take" && i < 0 && s.tooLate(q):
		return answer{Refused: true}
	case q.Op == "take" && i < 0 && !s.turn(q):
	case q.Op == "take" && i < 0 && !held:
		if len(shares) == 0 {
			s.data.last[q.Name] = s.mint(q.Name)
		}
		i, shares = len(shares), append(shares, entry{owner: q.Owner, token: s.data.last[q.Name]})
		fallthrough
	case (q.Op == "take" || q.Op == "extend") && i >= 0:
		shares[i].until = s.clock() + q.TTL
		a = answer{OK: true, Token: shares[i].token}
	case q.Op == "release":
		s.leave(q)
		a.OK = i >= 0 || s.data.ended[q.Owner] && s.flaw != "what was released is not held" || q.Again && s.flaw == "what is sent again was done"
		s.data.ended[q.Owner] = i >= 0 || s.data.ended[q.Owner]
		switch {
		case i >= 0:
			shares = slices.Delete(shares, i, i+1)
		case s.flaw == "the release of a share is a count":
			delete(s.data.locks, q.Name)
			fallthrough
		case q.Again && s.flaw == "a release that is sent again ends a share of another's":
			shares = shares[min(1, len(shares)):]
		}
	case q.Op == "downgrade" && held && e.owner == q.Owner:
		delete(s.data.locks, q.Name)
		shares, a = append(shares, e), answer{OK: true, Token: e.token}
	case q.Op == "downgrade":
		a.OK = i >= 0 && !(q.Again && s.flaw == "a downgrade that is sent again is refused")
	case q.Op == "extend" && s.flaw == "the Extend of a share sets what is gone":
		shares = append(shares, entry{owner: q.Owner, token: s.data.last[q.Name], until: s.clock() + 3*q.TTL})
		delete(s.data.locks, q.Name)
		a.OK = true
	}
	s.data.shares[q.Name] = shares
	return a
}

// tooLate reports whether a share is asked for in vain: its owner has given it up, or the server may not grant anything now.
func (s *server) tooLate(q question) bool {
	_, gaveUp := s.data.ended[q.Owner]
	return !takesLate[s.flaw] && s.flaw != "owner is the Locker" && (gaveUp || q.NotAfter > 0 && s.clock() > q.NotAfter || s.clock() < s.quiet)
}

// naiveShares is a read-write lock by polling, over a server. It is fair to nobody.
type naiveShares struct{ *naive }

func (l naiveShares) RLock(ctx context.Context) error {
	if l.flaw == "RLock ignores its ctx" {
		ctx = context.WithoutCancel(ctx)
	}
	l.shared = true
	return l.naive.Lock(ctx)
}

func (l naiveShares) TryRLock(ctx context.Context) error {
	l.shared = true
	return l.naive.TryLock(ctx)
}

func (l naiveShares) Lock(ctx context.Context) error    { return l.alone(ctx, l.naive.Lock) }
func (l naiveShares) TryLock(ctx context.Context) error { return l.alone(ctx, l.naive.TryLock) }

func (l naiveShares) alone(ctx context.Context, lock func(context.Context) error) error {
	if h := l.current(); l.shared && h != nil && !l.gone(h) {
		return errUpgrade
	}
	l.shared = false
	return lock(ctx)
}

// Downgrade makes the hold a share. If nobody knows whether it did, an Unlock ends either.
func (l naiveShares) Downgrade(ctx context.Context) error {
	h := l.current()
	switch {
	case h == nil:
		return locker.ErrNotHeld
	case l.gone(h):
		return locker.ErrLost
	}
	a, _, err := l.client.insist(ctx, question{Op: "downgrade", Name: l.name, Owner: h.by(), Shared: true}, l.ttl)
	if err == nil && !a.OK {
		return locker.ErrLost
	}
	l.shared = l.shared || err == nil
	return err
}

// naiveSharesWith is the harness of those with a flaw, or with none.
func naiveSharesWith(flaw string) conformance.Harness {
	h := naiveLocks(flaw, 0)
	through, process := h.Faults.Through, h.Faults.Process
	h.RW = func(t conformance.TB, name string, ttl time.Duration) conformance.RWLocker {
		return naiveShares{h.New(t, name, ttl).(*naive)}
	}
	h.Faults.Through = func(t conformance.TB, name string, ttl time.Duration, via func(string) string) locker.Locker {
		return naiveShares{through(t, name, ttl, via).(*naive)}
	}
	h.Faults.Process = func(t conformance.TB) *exec.Cmd {
		cmd := process(t)
		cmd.Env = append(cmd.Env, naiveHasShares+"=1")
		return cmd
	}
	return h
}

// servedNaive is what a process of naive locks has.
func servedNaive(t conformance.TB, name string, ttl time.Duration) locker.Locker {
	l := naiveLock(t, name, ttl, os.Getenv(naiveAddress), os.Getenv(naiveFlaw))
	if os.Getenv(naiveHasShares) != "" {
		return naiveShares{l}
	}
	return l
}

// sharesWithFaults are the scenarios of shares that need a fault.
func sharesWithFaults() []conformance.Scenario {
	return slices.DeleteFunc(readWrite(), func(s conformance.Scenario) bool { return len(s.Needs) == 1 })
}

// TestShares_ofLockersThatHaveNone are skipped, and say so.
func TestShares_ofLockersThatHaveNone(t *testing.T) {
	h, plain := naiveSharesWith(""), naiveLocks("", 0)
	h.Faults.Through, h.Faults.Process = plain.Faults.Through, plain.Faults.Process
	for _, s := range sharesWithFaults() {
		if slices.Contains(s.Needs, "Faults.StopServer") || slices.Contains(s.Needs, "Faults.FailOver") || strings.HasPrefix(s.Name, "a writer that is ") {
			continue // Harness.RW is enough
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			if err := try(s, h); !conformance.IsSkip(err) {
				t.Errorf("%v; want a skip", err)
			}
		})
	}
}
