package conformance

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/history"
)

var recordDir = flag.String("conformance.record", "",
	"folder in which each scenario leaves the history of its last trial: calls, faults, and what a resource accepted (default: none)")

// record is the history of one trial. It is nil unless the trial is recorded. Its methods do
// nothing then.
type record struct{ history.History }

func newRecord() *record {
	if *recordDir == "" {
		return nil
	}
	r := &record{history.History{Demand: history.Exclusive}}
	r.Begin()
	return r
}

// now is the time on its clock.
func (r *record) now() int64 {
	if r == nil {
		return 0
	}
	return r.Now()
}

// client returns the number of one.
func (r *record) client(who, name string, ttl time.Duration) int {
	if r == nil {
		return 0
	}
	return r.AddClient(history.Client{Who: who, Name: name, TTL: ttl})
}

// did takes down a call that has returned err.
func (r *record) did(e history.Event, err error) {
	if r == nil {
		return
	}
	e.Return, e.Err = r.Now(), errKindOf(err)
	if e.Err == history.OtherErr {
		e.Text = err.Error()
	}
	r.Record(e)
}

// befell takes down a fault that is over.
func (r *record) befell(f history.Fault) {
	if r != nil {
		f.To = r.Now()
		r.RecordFault(f)
	}
}

// save leaves the history of a trial that has ended with verdict, in place of that of the trial
// before.
func (r *record) save(test, scenario, again string, verdict error) error {
	r.Scenario, r.Again, r.Outcome = scenario, again, "kept"
	if verdict != nil {
		r.Outcome = verdict.Error()
	}
	if err := os.MkdirAll(*recordDir, 0o755); err != nil {
		return err
	}
	name := strings.NewReplacer("/", ".", " ", "_").Replace(test + "." + scenario + ".json")
	file, err := os.Create(filepath.Join(*recordDir, name))
	if err != nil {
		return err
	}
	return errors.Join(r.Encode(file), file.Close())
}

// errStale is the answer of a resource that checks tokens to a write with a smaller one.
var errStale = errors.New("the token is stale")

// errKindOf returns what of an error matters to a history.
func errKindOf(err error) history.ErrKind {
	switch {
	case err == nil:
		return history.NoErr
	case errors.Is(err, locker.ErrLost):
		return history.IsLost
	case errors.Is(err, locker.ErrNotHeld):
		return history.IsNotHeld
	case errors.Is(err, locker.ErrHeld):
		return history.IsHeld
	case errors.Is(err, errStale):
		return history.IsStale
	default:
		return history.OtherErr
	}
}
