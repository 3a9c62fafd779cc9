package recipes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/election"
)

var electionScenarios = []scenario{{
	name:    "election: terms never overlap, and rise",
	promise: "A term is one hold of the lock, and its number is larger than that of every earlier term.",
	check:   termsRise,
}, {
	name:    "election: observers never go back",
	promise: "Observe returns who leads after each change, and never goes back to an earlier term.",
	check:   observersNeverGoBack,
}, {
	name:    "election: a resignation hands over",
	promise: "When the leader resigns, the next one leads long before the term would expire, and the first stays a candidate.",
	check:   resignationHandsOver,
}, {
	name:    "election: a leader that is not renewed has the reserve",
	promise: "The context of lead ends when reserve is left until the term can be another's, and then another leads.",
	check:   reserveIsLeft,
}, {
	name:     "election: a silent server ends the term",
	promise:  "IsLeader returns false by the deadline, even when the backend is unreachable, and when it is back there is a leader again.",
	disturbs: true,
	check:    silentElection,
}}

// terms has three candidates lead and resign, until there were as many terms as asked for.
func (e *env) terms(name string, n int) error {
	ctx, stop := context.WithCancel(e.within(e.patient))
	defer stop()
	turns, left := newTurns(), make(chan struct{}, n)
	for range n {
		left <- struct{}{}
	}
	var candidates []func() error
	for i := range 3 {
		one := election.New(e.client(e.long, locker.WithMetadata(fmt.Sprint("candidate ", i))), name)
		candidates = append(candidates, func() error {
			var seen error
			err := one.Lead(ctx, 0, func(ctx context.Context, term uint64) {
				if seen = turns.enter("the lead", term); seen != nil {
					stop()
					return
				}
				defer turns.leave("the lead")
				if now := one.Term(); now != term && ctx.Err() == nil {
					seen = fmt.Errorf("Term returned %d in term %d", now, term)
				}
				time.Sleep(50 * time.Millisecond) // for an observer to see
				select {
				case <-left:
					one.Resign()
					<-ctx.Done()
				default:
					stop()
				}
			})
			return errors.Join(seen, err)
		})
	}
	err := all(candidates...)
	if len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("after %v there were still %d terms to come", e.patient, len(left)))
	}
	return err
}

func termsRise(e *env) error { return e.terms(e.fresh("leader"), 6) }

func observersNeverGoBack(e *env) error {
	name := e.fresh("leader")
	watcher := election.New(e.client(e.long), name)
	switch _, err := watcher.Leader(e.within(e.patient)); {
	case errors.Is(err, locker.ErrUnsupported):
		return fmt.Errorf("%w: %w", errSkip, err)
	case err != nil:
		return err
	}
	ctx, stop := context.WithCancel(e.within(e.patient))
	defer stop()
	return all(func() error {
		defer stop()
		return e.terms(name, 6)
	}, func() error {
		var newest uint64
		seen := 0
		for leader, err := range watcher.Observe(ctx, 10*time.Millisecond) {
			switch {
			case err != nil || leader.Term == 0:
				continue // a busy server, or nobody leads
			case leader.Term < newest:
				return fmt.Errorf("term %d was observed after term %d", leader.Term, newest)
			}
			newest = leader.Term
			seen++
		}
		if seen == 0 {
			return errors.New("no leader was observed")
		}
		return nil
	})
}

// process is a candidate.
type process struct {
	*election.Election
	terms chan uint64
	stop  func() error // ends Lead, and returns its error
}

// campaign has a process be a candidate until it is stopped, or the scenario ends.
func (e *env) campaign(c *locker.Client, name string, reserve time.Duration) process {
	one, terms := election.New(c, name), make(chan uint64, 100)
	ctx, cancel := context.WithCancel(e.Context())
	done := make(chan error, 1)
	go func() {
		done <- one.Lead(ctx, reserve, func(ctx context.Context, term uint64) {
			terms <- term
			<-ctx.Done()
		})
	}()
	stop := sync.OnceValue(func() error { cancel(); return <-done })
	e.Cleanup(func() { _ = stop() })
	return process{one, terms, stop}
}

// next returns the next term of a candidate.
func (e *env) next(who string, p process) (uint64, error) {
	select {
	case term := <-p.terms:
		return term, nil
	case <-time.After(e.patient):
		return 0, fmt.Errorf("after %v %s does not lead", e.patient, who)
	}
}

func resignationHandsOver(e *env) error {
	name := e.fresh("leader")
	a := e.campaign(e.client(e.long), name, 0)
	if _, err := e.next("A", a); err != nil {
		return err
	}
	b := e.campaign(e.client(e.long), name, 0)
	a.Resign()
	if a.IsLeader() {
		return errors.New("A has resigned, and IsLeader returned true")
	}
	first, err := e.next("B", b)
	if err != nil {
		return fmt.Errorf("A has resigned: %w", err)
	}
	time.Sleep(1500 * time.Millisecond) // A is a candidate again
	b.Resign()
	second, err := e.next("A", a)
	if err != nil {
		return fmt.Errorf("B has resigned: %w", err)
	}
	if second <= first {
		return fmt.Errorf("term %d came after term %d", second, first)
	}
	return errors.Join(b.stop(), a.stop())
}

func reserveIsLeft(e *env) error {
	name, reserve := e.fresh("leader"), e.TTL/4
	c := e.client(e.TTL, locker.WithoutRenewal())
	began := time.Now()
	a := e.campaign(c, name, reserve)
	first, err := e.next("A", a)
	if err != nil {
		return err
	}
	b := e.campaign(e.client(e.long), name, 0)
	second, err := e.next("B", b)
	if err != nil {
		return err
	}
	if a.IsLeader() {
		return errors.New("B leads, and A's IsLeader returned true")
	}
	if second <= first {
		return fmt.Errorf("term %d came after term %d", second, first)
	}
	if took := time.Since(began); took < e.TTL/8 {
		return fmt.Errorf("A's term ended after %v", took)
	}
	_ = a.stop() // an Unlock on a busy machine may be too late
	return b.stop()
}

func silentElection(e *env) error {
	c := e.client(e.TTL)
	a := e.campaign(c, e.fresh("leader"), e.TTL/4)
	before, err := e.next("A", a)
	if err != nil {
		return err
	}
	resume := e.StopServers(e.TB)
	defer resume()
	time.Sleep(e.TTL + time.Millisecond) // what was under way when they stopped lasts no longer
	if a.IsLeader() {
		return fmt.Errorf("the servers have been silent for %v, and IsLeader returned true", e.TTL)
	}
	resume()
	if err := e.answers(c); err != nil {
		return err
	}
	again, err := e.next("A, after the servers were silent,", a)
	if err == nil && again <= before {
		err = fmt.Errorf("after term %d, and a silence of the servers, came term %d", before, again)
	}
	return err
}
