package party

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/history"
)

// Again returns the command that has the same clients and faults once more. The order in which they
// act is the machine's.
func (e *Env) Again(seed uint64) string {
	if !testing.Testing() {
		return fmt.Sprintf("locker check --seed %d --run '^%s$', and what else was on the command line", seed, quoted(e.Scenario))
	}
	var names []string
	for name := range strings.SplitSeq(e.Harness.Test+"/"+strings.ReplaceAll(e.Scenario, " ", "_"), "/") {
		names = append(names, "^"+quoted(name)+"$")
	}
	pkg := "."
	if info, ok := debug.ReadBuildInfo(); ok && info.Path != "" {
		pkg = strings.TrimSuffix(info.Path, ".test")
	}
	command := []string{fmt.Sprintf("go test %s -run '%s'", pkg, strings.Join(names, "/"))}
	if seed > 0 {
		command = append(command, fmt.Sprintf("-conformance.seed=%d", seed))
	}
	for _, name := range []string{"conformance.for", "conformance.faults"} {
		if f := flag.Lookup(name); f.Value.String() != f.DefValue {
			command = append(command, fmt.Sprintf("-%s=%s", f.Name, f.Value))
		}
	}
	return strings.Join(command, " ")
}

// quoted returns a regular expression for a name, to stand between single quotes.
func quoted(name string) string { return strings.ReplaceAll(regexp.QuoteMeta(name), "'", ".") }

var recordDir = flag.String("conformance.record", "",
	"folder in which each scenario leaves the history of its last trial: calls, faults, and what a resource accepted (default: none)")

// Record is the history of one trial. It is nil unless the trial is recorded. Its methods do
// nothing then.
type Record struct{ history.History }

func newRecord() *Record {
	if *recordDir == "" {
		return nil
	}
	r := &Record{history.History{Demand: history.Exclusive}}
	r.Begin()
	return r
}

// Time is the time on its clock.
func (r *Record) Time() int64 {
	if r == nil {
		return 0
	}
	return r.Now()
}

// client returns the number of one.
func (r *Record) client(who, name string, ttl time.Duration) int {
	if r == nil {
		return 0
	}
	return r.AddClient(history.Client{Who: who, Name: name, TTL: ttl})
}

// did takes down a call that has returned err.
func (r *Record) did(e history.Event, err error) {
	if r == nil {
		return
	}
	e.Return, e.Err = r.Now(), ErrKindOf(err)
	if e.Err == history.OtherErr {
		e.Text = err.Error()
	}
	r.Record(e)
}

// FaultOver takes down a fault that is over.
func (r *Record) FaultOver(f history.Fault) {
	if r != nil {
		f.To = r.Now()
		r.RecordFault(f)
	}
}

// Keep leaves the history of a trial that has ended with verdict, in place of that of the trial
// before.
func (r *Record) Keep(test, scenario, again string, verdict error) error {
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

// ErrKindOf returns what of an error matters to a history.
func ErrKindOf(err error) history.ErrKind {
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

// Register is a number that many parties change. A guarded one refuses reads and writes with a
// token that is 0, or below the largest it has seen.
type Register struct {
	Guarded bool

	mu      sync.Mutex
	Value   int
	Writes  int // accepted
	Refused int
	Largest uint64
}

// show checks a token if r is guarded. The caller holds r.mu.
func (r *Register) show(token uint64) error {
	if !r.Guarded {
		return nil
	}
	if token == 0 || token < r.Largest {
		r.Refused++
		return fmt.Errorf("%w: it is %d, the largest so far %d", errStale, token, r.Largest)
	}
	r.Largest = token
	return nil
}

func (r *Register) Read(token uint64) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Value, r.show(token)
}

func (r *Register) Write(token uint64, value int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.show(token); err != nil {
		return err
	}
	r.Value = value
	r.Writes++
	return nil
}

// Reads is Read by p, recorded.
func (p *Party) Reads(r *Register, token uint64) (int, error) {
	since := p.Env.Record.Time()
	n, err := r.Read(token)
	p.Env.Record.did(history.Event{Client: p.ID, Op: history.OpRead, Call: since, Token: token, Value: n, Fenced: r.Guarded}, err)
	return n, err
}

// Writes is Write by p, recorded.
func (p *Party) Writes(r *Register, token uint64, value int) error {
	since := p.Env.Record.Time()
	err := r.Write(token, value)
	p.Env.Record.did(history.Event{Client: p.ID, Op: history.OpWrite, Call: since, Token: token, Value: value, Fenced: r.Guarded}, err)
	return err
}

// Lost returns the number of lost updates.
func (r *Register) Lost() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Writes - r.Value
}

// bothWrite has p and b, who hold the lock at the same time, both read a value and write it plus 1;
// b, who got the lock later, writes first. It returns how a resource that checks tokens reacts, or
// "" if there are no tokens.
func (e *Env) bothWrite(p, b *Party) string {
	older, newer := p.Token(), b.Token()
	if older == 0 || newer == 0 {
		return ""
	}
	var first, second error
	for _, r := range []*Register{{}, {Guarded: true}} {
		was, _ := p.Reads(r, older)
		is, _ := b.Reads(r, newer)
		first, second = b.Writes(r, newer, is+1), p.Writes(r, older, was+1)
	}
	switch {
	case first != nil:
		return fmt.Sprintf("; a resource that checks tokens refuses the write of %s, who got the lock later", b.Who)
	case second != nil:
		return fmt.Sprintf("; a resource that checks tokens refuses the late write of %s", p.Who)
	default:
		return "; a resource that checks tokens accepts both" // the tokens are equal
	}
}

// Sequence checks that tokens rise.
type Sequence struct {
	last uint64
	of   string
}

// Next returns the token of p's hold, and ends the trial unless it is larger than all before it.
func (s *Sequence) Next(p *Party, of string) (token uint64) {
	token = p.SomeToken(of)
	if token <= s.last {
		p.Env.Failf("the token of %s is %d, that of %s before it was %d; want a larger one", of, token, s.of, s.last)
	}
	s.last, s.of = token, of
	return token
}
