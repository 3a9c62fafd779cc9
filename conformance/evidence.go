package conformance

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/history"
)

var evidenceDir = flag.String("conformance.dir", "", "folder that histories are saved in which fail (default: a new one among the temporary files)")

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
	default:
		return history.OtherErr
	}
}

// newDir is one for all histories of this process.
var newDir = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "conformance-") })

// refuse saves a history that no lock can have, and ends the trial with what a person has to know
// of it.
func (e *env) refuse(h *history.History, j history.Judgement) {
	h.Scenario, h.Again = e.scenario, e.again(h.Seed)
	text := h.Report(j)
	dir, err := *evidenceDir, error(nil)
	if dir == "" {
		dir, err = newDir()
	}
	var files history.Files
	if err == nil {
		files, err = h.Save(dir, j)
	}
	if err != nil {
		e.failf("%s\nthe history could not be saved: %w\nthe same clients and faults again: %s", text, err, h.Again)
	}
	e.failf("%s\nthe history: %s\nits pages: %s, and on a time line: %s\njudge it again: locker check --replay %s\nthe same clients and faults again: %s",
		text, files.History, files.Model, files.Timeline, files.History, h.Again)
}

// again returns the command that has the same clients and faults once more. The order in which they
// act is the machine's.
func (e *env) again(seed uint64) string {
	if !testing.Testing() {
		return fmt.Sprintf("locker check --seed %d --run '^%s$', and what else was on the command line", seed, quoted(e.scenario))
	}
	var names []string
	for name := range strings.SplitSeq(e.h.test+"/"+strings.ReplaceAll(e.scenario, " ", "_"), "/") {
		names = append(names, "^"+quoted(name)+"$")
	}
	pkg := "."
	if info, ok := debug.ReadBuildInfo(); ok && info.Path != "" {
		pkg = strings.TrimSuffix(info.Path, ".test")
	}
	command := []string{fmt.Sprintf("go test %s -run '%s' -conformance.seed=%d", pkg, strings.Join(names, "/"), seed)}
	for _, name := range []string{"conformance.for", "conformance.faults"} {
		if f := flag.Lookup(name); f.Value.String() != f.DefValue {
			command = append(command, fmt.Sprintf("-%s=%s", f.Name, f.Value))
		}
	}
	return strings.Join(command, " ")
}

// quoted returns a regular expression for a name, to stand between single quotes.
func quoted(name string) string { return strings.ReplaceAll(regexp.QuoteMeta(name), "'", ".") }
