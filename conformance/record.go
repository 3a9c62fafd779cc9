package conformance

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-locker/locker/internal/history"
)

var recordDir = flag.String("conformance.record", "",
	"folder in which each scenario leaves the history of its last trial: calls, faults, and what a resource accepted (default: none)")

// newRecord returns the history in which a trial is recorded, or nil.
func newRecord() *history.History {
	if *recordDir == "" {
		return nil
	}
	h := &history.History{Demand: history.Exclusive}
	h.Begin()
	return h
}

// since is the time on the clock of the record, if there is one.
func (e *env) since() int64 {
	if e.record == nil {
		return 0
	}
	return e.record.Now()
}

// did records a call of p that has returned err, if the trial is recorded.
func (p *party) did(v history.Event, err error) {
	h := p.env.record
	if h == nil {
		return
	}
	v.Client, v.Return, v.Err = p.id, h.Now(), errKindOf(err)
	if v.Err == history.OtherErr {
		v.Text = err.Error()
	}
	h.Record(v)
}

// befell records a fault that is over, if the trial is recorded.
func (e *env) befell(f history.Fault) {
	if e.record != nil {
		f.To = e.record.Now()
		e.record.RecordFault(f)
	}
}

// saveRecord leaves the record of a trial that has ended with verdict, in place of that of the trial before.
func (e *env) saveRecord(verdict error) {
	h := e.record
	if h == nil || IsSkip(verdict) {
		return
	}
	h.Scenario, h.Again, h.Outcome = e.row.name, e.again(0), "kept"
	if verdict != nil {
		h.Outcome = verdict.Error()
	}
	name := strings.NewReplacer("/", ".", " ", "_").Replace(e.h.test + "." + e.row.name + ".json")
	err := os.MkdirAll(*recordDir, 0o755)
	var file *os.File
	if err == nil {
		file, err = os.Create(filepath.Join(*recordDir, name))
	}
	if err == nil {
		err = errors.Join(h.Encode(file), file.Close())
	}
	if err != nil {
		e.Logf("-conformance.record: %v", err)
	}
}
