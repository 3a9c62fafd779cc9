package conformance_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/test/testwait"
)

// sharesOf are those of a name that have not expired.
func (s *server) sharesOf(name string) []entry {
	if s.flaw == "a share never expires" {
		return s.data.shares[name]
	}
	return slices.DeleteFunc(slices.Clone(s.data.shares[name]), func(e entry) bool { return s.clock() >= e.until+s.late })
}

// share does what is asked for a share. held reports whether the lock is held alone.
func (s *server) share(q question, held bool) (a answer) {
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
	case q.Op != "release" && i >= 0:
		shares[i].until = s.clock() + q.TTL
		a = answer{OK: true, Token: shares[i].token}
	case q.Op == "release":
		s.leave(q)
		a.OK = i >= 0 || s.data.ended[q.Owner] && s.flaw != "what was released is not held"
		s.data.ended[q.Owner] = i >= 0 || s.data.ended[q.Owner]
		if i >= 0 {
			shares = slices.Delete(shares, i, i+1)
		} else if s.flaw == "the release of a share is a count" {
			delete(s.data.locks, q.Name)
			shares = shares[min(1, len(shares)):]
		}
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
	l.shared = true
	if l.flaw == "RLock ignores its ctx" {
		ctx = context.WithoutCancel(ctx)
	}
	return l.Lock(ctx)
}

func (l naiveShares) TryRLock(ctx context.Context) error {
	l.shared = true
	return l.TryLock(ctx)
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

// TestShares_naive: shares that have no code in common with the module's keep all promises about faults.
func TestShares_naive(t *testing.T) {
	testwait.OnlyNightly(t, "the suites of the adapters have correct shares, too")
	var tasks []task
	for _, s := range sharesWithFaults() {
		tasks = append(tasks, task{s.Name, s, func() conformance.Harness { return naiveSharesWith("") }})
	}
	for _, d := range again(t, allTried(30, tasks), func(seen error) bool { return seen != nil }) {
		if d.seen != nil {
			t.Errorf("%q: %v", d.name, d.seen)
		}
	}
}

// TestShares_ofLockersThatHaveNone are skipped, and say so.
func TestShares_ofLockersThatHaveNone(t *testing.T) {
	h, plain := naiveSharesWith(""), naiveLocks("", 0)
	h.Faults.Through, h.Faults.Process = plain.Faults.Through, plain.Faults.Process
	for _, s := range sharesWithFaults() {
		if slices.Contains(s.Needs, "Faults.StopServer") {
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
