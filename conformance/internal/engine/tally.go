package engine

import (
	"errors"
	"flag"
	"fmt"
	"time"
)

// A Locker may report a hold lost before its time now and then, and a machine may be slow without a
// pause that is seen here. So what is in doubt counts by default if every trial saw it. If you know
// your Locker and your machine you can ask for more.
var doubtsFlag = flag.Int("conformance.doubts", 4,
	"how many trials of a scenario may be in doubt, on a machine that did not pause, though the promise is said to be kept")

// Tally counts the trials of a scenario. A pause of the machine may spoil one either way: a flaw
// that shows in a moment passes unseen, or a Locker that does nothing wrong looks slow.
type Tally struct {
	Long    bool // a trial is, and a pause hides little of it
	Trials  int
	kept    int   // with nothing seen
	hidden  int   // of kept: the machine paused
	Doubts  int   // in doubt
	Excused int   // of doubts: the machine paused, or was overloaded
	silent  int   // of doubts: the trial says nothing of the Locker
	mute    int   // of silent: the machine neither paused nor was overloaded
	Seen    error // in the last in doubt that says something, if there is any
}

// Trials is how often a scenario is tried. A trial that an unlucky pause of the machine, or a loss
// that the contract allows, can spoil is repeated: only what spoils every trial is the Locker's
// fault.
var Trials = 5

// trialsIfKnown are enough of a promise that is said to be broken.
const trialsIfKnown = 2

// Respite is how much longer each time a scenario waits after a trial in doubt: what keeps the
// machine busy may be over by then.
var Respite = 200 * time.Millisecond

// Run runs trials until one of them says something for certain, another would tell nothing new, or
// half of limit has passed. One trial in doubt proves nothing, however long it took, nor do those in
// which the machine was busy: two others do.
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

// Confirm runs trials of a promise that is said to be broken. luck: to see that may need some.
// Confirm returns nil only if no trial has seen anything.
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

// enoughClean trials with nothing seen are enough, whatever pauses there were.
const enoughClean = 3

// add takes in a trial, and reports whether it is the last word.
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

// enough reports whether another trial would tell nothing new. Once one was in doubt there are as
// many as may be: a promise that was kept in four of five trials is another than one that was kept
// in one of two. If the machine spoiled every one there are more, while there is time.
func (n *Tally) enough() bool {
	spoiled := n.kept == 0 && n.Doubts-n.Excused < 2
	return n.Trials >= Trials && !spoiled || n.hidden >= enoughClean || n.Doubts == 0 && n.kept > n.hidden
}

// verdict is on trials none of which was the last word.
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
