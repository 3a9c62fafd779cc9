package engine

import (
	"errors"
	"flag"
	"fmt"
	"time"
)

// A Locker may report a hold lost before its time now and then, and a machine may be slow without a
// pause that is seen here. So by default doubts count only if every trial had one. If you know your
// Locker and your machine you can ask for more.
var doubtsFlag = flag.Int("conformance.doubts", 4,
	"how many trials of a scenario may be in doubt, on a machine that did not pause, though the promise is said to be kept")

// Tally counts the trials of a scenario. A pause of the machine may spoil a trial either way: it
// may hide a flaw that shows only for a moment, or make a correct Locker look slow.
type Tally struct {
	Long    bool // trials are long, and a pause hides little of one
	Trials  int
	Holds   int   // in the contention of the last trial
	kept    int   // with nothing seen
	hidden  int   // of kept: the machine paused
	Doubts  int   // in doubt
	Excused int   // of doubts: the machine paused, or was overloaded
	silent  int   // of doubts: the trial was inconclusive
	mute    int   // of silent: the machine neither paused nor was overloaded
	Seen    error // of the last doubt, preferably of a conclusive trial
}

// Trials is the normal maximum of trials. A trial is repeated if a pause of the machine, or a loss
// that the contract allows, may have spoiled it: only a fault of the Locker spoils every trial.
var Trials = 5

// trialsIfKnown is the number of trials of a promise that is known to be broken.
const trialsIfKnown = 2

// Respite is how much longer a scenario waits after each further trial in doubt, for other work on
// the machine to end.
var Respite = 200 * time.Millisecond

// Run runs trials until one gives a certain verdict, another would add nothing, or half of limit
// has passed. One trial in doubt proves nothing, however long it took, nor do trials in which the
// machine was busy: two others do.
func (n *Tally) Run(limit time.Duration, logf func(format string, args ...any), trial func() (paused bool, err error)) error {
	end := time.Now().Add(limit / 2)
	for {
		paused, err := trial()
		if n.add(err, paused) {
			return err
		}
		if n.enough() || time.Now().After(end) && (n.kept > 0 || n.Doubts > 1) {
			return n.verdict()
		}
		if err != nil {
			logf("trial %d: %v", n.Trials, err)
			time.Sleep(time.Duration(n.Trials) * Respite)
		}
	}
}

// Confirm runs trials of a promise that is known to be broken. luck: it may take luck to see the
// breach. Confirm returns nil only if no trial saw it.
func (n *Tally) Confirm(luck bool, trial func() (paused bool, err error)) error {
	var seen error
	for n.Trials < Trials && n.Doubts < trialsIfKnown {
		paused, err := trial()
		if n.add(err, paused) || n.kept > 0 && luck {
			return err
		}
		if _, idle := errors.AsType[*IdleFault](err); err != nil && !idle {
			seen = n.Seen
		}
	}
	if seen == nil && n.kept == 0 { // the fault has never acted
		return n.Seen
	}
	return seen
}

// enoughClean is the number of trials without a breach that are enough, whatever pauses there were.
const enoughClean = 3

// add counts a trial, and reports whether its verdict is certain.
func (n *Tally) add(err error, paused bool) (certain bool) {
	n.Trials++
	doubt, doubted := errors.AsType[*Doubt](err)
	switch {
	case doubted:
		n.Doubts++
		silent := errors.Is(doubt.Seen, ErrInDoubt)
		if silent {
			n.silent++
		}
		if !silent || n.silent == n.Doubts {
			n.Seen = doubt.Seen
		}
		switch {
		case paused:
			n.Excused++
		case silent:
			n.mute++
		}
	case err == nil:
		n.kept++
		if paused && !n.Long {
			n.hidden++
		}
	default:
		return true
	}
	return false
}

// enough reports whether another trial would add nothing. After a doubt all Trials are run, because
// a promise kept in four of five trials is not one kept in one of two. If the machine spoiled every
// trial more are run, while there is time.
func (n *Tally) enough() bool {
	spoiled := n.kept == 0 && n.Doubts-n.Excused < 2
	return n.Trials >= Trials && !spoiled || n.hidden >= enoughClean || n.Doubts == 0 && n.kept > n.hidden
}

// verdict returns the verdict on trials none of which was certain.
func (n *Tally) verdict() error {
	sure := n.Doubts - n.Excused
	switch {
	case n.kept == 0 && n.silent > 0 && n.silent < n.Doubts:
		return fmt.Errorf("%w: %d of %d trials say nothing; in the others, the last time: %w", ErrInDoubt, n.silent, n.Trials, n.Seen)
	case n.kept == 0 && sure < 2:
		return fmt.Errorf("%w: in each of %d trials, and in %d of them the machine paused or was overloaded; the last time: %w",
			ErrInDoubt, n.Trials, n.Excused, n.Seen)
	case n.kept == 0:
		return fmt.Errorf("in each of %d trials; the last time: %w", n.Trials, n.Seen)
	case n.kept == n.hidden && sure > 1:
		return fmt.Errorf("in all of %d trials but %d, in which the machine paused; the last time: %w", n.Trials, n.kept, n.Seen)
	case sure-n.mute > *doubtsFlag:
		return fmt.Errorf("in %d of %d trials; the last time: %w", n.Doubts, n.Trials, n.Seen)
	default:
		return nil
	}
}
