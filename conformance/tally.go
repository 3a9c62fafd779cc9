package conformance

import (
	"errors"
	"flag"
	"fmt"
)

// A Locker may report a hold lost before its time now and then, and a machine may be slow without a pause that is seen here. So
// what is in doubt counts by default if every trial saw it. If you know your Locker and your machine you can ask for more.
var doubtsFlag = flag.Int("conformance.doubts", 4,
	"how many trials of a scenario may be in doubt, on a machine that did not pause, though the promise is said to be kept")

// tally counts the trials of a scenario. A pause of the machine may spoil one either way: a flaw that shows in a moment
// passes unseen, or a Locker that does nothing wrong looks slow.
type tally struct {
	long    bool // a trial is, and a pause hides little of it
	trials  int
	kept    int   // with nothing seen
	hidden  int   // of kept: the machine paused
	doubts  int   // in doubt
	excused int   // of doubts: the machine paused, or was overloaded
	silent  int   // of doubts: the trial says nothing of the Locker
	seen    error // in the last in doubt that says something, if there is any
}

// enoughClean trials with nothing seen are enough, whatever pauses there were.
const enoughClean = 3

// add takes in a trial, and reports whether it is the last word.
func (n *tally) add(err error, paused bool) (certain bool) {
	n.trials++
	doubt, doubted := errors.AsType[*doubtful](err)
	switch {
	case doubted:
		n.doubts++
		silent := errors.Is(doubt.seen, errInDoubt)
		if silent {
			n.silent++
		}
		if !silent || n.silent == n.doubts {
			n.seen = doubt.seen
		}
		if paused {
			n.excused++
		}
	case err == nil:
		n.kept++
		if paused && !n.long {
			n.hidden++
		}
	default:
		return true
	}
	return false
}

// enough reports whether another trial would tell nothing new. Once one was in doubt there are as many as may be: a promise
// that was kept in four of five trials is another than one that was kept in one of two. If the machine spoiled every one there are
// more, while there is time.
func (n *tally) enough() bool {
	spoiled := n.kept == 0 && n.excused == n.doubts
	return n.trials >= trials && !spoiled || n.hidden >= enoughClean || n.doubts == 0 && n.kept > n.hidden
}

// verdict is on trials none of which was the last word.
func (n *tally) verdict() error {
	sure := n.doubts - n.excused
	switch {
	case n.kept == 0 && n.silent > 0 && n.silent < n.doubts:
		return fmt.Errorf("%w: %d of %d trials say nothing; in the others, at last: %w", errInDoubt, n.silent, n.trials, n.seen)
	case n.kept == 0:
		return fmt.Errorf("in each of %d trials, at last: %w", n.trials, n.seen)
	case n.kept == n.hidden && sure > 1:
		return fmt.Errorf("in all of %d trials but %d, in which the machine paused, at last: %w", n.trials, n.kept, n.seen)
	case sure > *doubtsFlag:
		return fmt.Errorf("in %d of %d trials, at last: %w", n.doubts, n.trials, n.seen)
	default:
		return nil
	}
}

// errInDoubt is of a history that says nothing of the lock: it was not disturbed as it was to be, or the checker could not decide. No
// deviation of the backend explains it.
var errInDoubt = errors.New("in doubt")

// A trial that an unlucky pause of the machine, or a loss that the contract allows, can spoil is
// repeated: only what spoils every trial is the Locker's fault.
var trials = 5

// doubtful is an error that counts only if every trial ends with one.
type doubtful struct{ seen error }

func (d *doubtful) Error() string { return d.seen.Error() }

func (d *doubtful) Unwrap() error { return d.seen }
