// Command matrix writes down what the conformance suite saw: what each backend's lock is worth, and how they compare, from
// the results of one run and from nothing else.
//
//	make matrix
//
// runs the suite over all backends with -conformance.results, a file for each backend and one for
// other libraries, and then this program. It writes docs/guarantees.json, and from that docs/matrix.html,
// which has every lock and every promise, and the table in docs/backends/README.md. It fails, having
// written all that, if a result contradicts what the backend declares.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/bench/thirdparty"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/backends"
)

func main() {
	results := flag.String("results", "", "directory with the results of a run; empty: those in docs/guarantees.json, once more")
	flag.Parse()
	if err := run(*results); err != nil {
		fmt.Fprintf(os.Stderr, "matrix: %v\n", err)
		os.Exit(1)
	}
}

// docs is the folder that is written to.
const docs = "../docs"

func run(results string) error {
	saved := filepath.Join(docs, "guarantees.json")
	var r *Run
	var err error
	if results == "" {
		r, err = open(saved)
	} else if r, err = collect(results); err == nil {
		err = r.save(saved)
	}
	if err != nil {
		return err
	}
	html, err := r.htmlPage()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(docs, htmlFile), []byte(html), 0o644); err != nil {
		return err
	}
	if err := insert(filepath.Join(docs, tableFile), r.table()); err != nil {
		return err
	}
	fmt.Println(r.summary())
	return errors.Join(r.contradictions()...)
}

// In pages that people write a table stands between these.
const (
	tableBegins = "<!-- made by make matrix: begin -->"
	tableEnds   = "<!-- made by make matrix: end -->"
)

// insert replaces the table in a page.
func insert(file, table string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), tableBegins)
	_, after, ok2 := strings.Cut(rest, tableEnds)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no place for the table, between %q and %q", file, tableBegins, tableEnds)
	}
	return os.WriteFile(file, []byte(before+tableBegins+"\n"+table+tableEnds+after), 0o644)
}

// otherLibraries names the file with the results of other libraries.
const otherLibraries = "thirdparty"

// Setting is where and of what a run was.
type Setting struct {
	At         time.Time    `json:"at"`
	Go         string       `json:"go"`
	OS         string       `json:"os"`
	Processors int          `json:"processors"`
	Server     string       `json:"server"` // with its version
	Libraries  []LibraryRow `json:"libraries"`
}

// LibraryRow says which version of a library was tried, and how it was set up.
type LibraryRow struct {
	Name     string `json:"name"`
	Module   string `json:"module"`
	Version  string `json:"version"`
	Settings string `json:"settings"`
}

// Run is what one run of the suite over all backends has seen.
type Run struct {
	Setting Setting
	Results map[string][]conformance.Result // by the backend's file
}

// line is a line of the file in which a Run is saved: its setting, or a result of a backend.
type line struct {
	Setting *Setting            `json:"setting,omitempty"`
	Backend string              `json:"backend,omitempty"`
	Result  *conformance.Result `json:"result,omitempty"`
}

// collect reads the files that a run has left in a directory.
func collect(dir string) (*Run, error) {
	versions, err := servers()
	if err != nil {
		return nil, err
	}
	r := &Run{Results: map[string][]conformance.Result{}, Setting: Setting{
		At: time.Now().UTC(), Go: runtime.Version(), OS: runtime.GOOS + "/" + runtime.GOARCH,
		Processors: runtime.GOMAXPROCS(0), Server: versions,
	}}
	for _, b := range backends.All {
		results, err := read[conformance.Result](filepath.Join(dir, b.Package+".json"))
		if err != nil {
			return nil, err
		}
		if len(results) == 0 {
			return nil, fmt.Errorf("%s: no results", b.Package)
		}
		r.Results[b.Package] = results
	}
	others, err := read[conformance.Result](filepath.Join(dir, otherLibraries+".json"))
	if err != nil {
		return nil, err
	}
	modules := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			modules[m.Path] = m.Version
		}
	}
	for _, l := range thirdparty.All() {
		version := cmp.Or(l.Release, modules[l.Module])
		r.Setting.Libraries = append(r.Setting.Libraries, LibraryRow{l.Name, l.Module, version, l.Settings})
		if !slices.ContainsFunc(others, func(s conformance.Result) bool { return s.Test == l.Test }) {
			return nil, fmt.Errorf("%s: no results of %s", otherLibraries, l.Name)
		}
	}
	r.Results[otherLibraries] = others
	r.shorten()
	return r, nil
}

// What is another in each run, and tells a reader nothing: the names of locks, and where a history was left.
var (
	varying = regexp.MustCompile(`conformance-[0-9a-f]{16}`)
	saved   = regexp.MustCompile(`\nthe history, and beside it as JSON: \S+`)
	folder  = regexp.MustCompile(`/[\w./+@-]*/([\w.-]+\.go:\d+)`) // of a source file, on this machine
)

// shorten leaves out what the scenarios themselves say, and what a person does not read.
func (r *Run) shorten() {
	for _, results := range r.Results {
		for i := range results {
			s := &results[i]
			s.Promise = ""
			s.Seen = brief(folder.ReplaceAllString(varying.ReplaceAllString(saved.ReplaceAllString(s.Seen, ""), "x"), "$1"))
			if s.Doubts == 0 { // as nearly always
				s.Trials = 0
			}
			if s.Outcome == conformance.Kept && s.Doubts == 0 {
				s.Seen = ""
			}
		}
	}
}

// brief is text in one line, that ends where a person would stop to read.
func brief(text string) string {
	const enough = 320
	line := strings.Join(strings.FieldsFunc(text, func(c rune) bool { return c == '\n' || c == '\t' }), "; ")
	line = strings.ReplaceAll(line, ":; ", ": ")
	if len(line) <= enough {
		return line
	}
	cut := strings.LastIndexByte(line[:enough], ' ')
	return line[:max(cut, 0)] + " …"
}

// open reads a run that was saved.
func open(file string) (*Run, error) {
	lines, err := read[line](file)
	if err != nil {
		return nil, err
	}
	r := &Run{Results: map[string][]conformance.Result{}}
	for _, l := range lines {
		if l.Setting != nil {
			r.Setting = *l.Setting
		}
		if l.Result != nil {
			r.Results[l.Backend] = append(r.Results[l.Backend], *l.Result)
		}
	}
	return r, nil
}

func (r *Run) save(file string) error {
	var b bytes.Buffer
	out := json.NewEncoder(&b)
	if err := out.Encode(line{Setting: &r.Setting}); err != nil {
		return err
	}
	for _, name := range r.files() {
		for _, result := range r.Results[name] {
			if err := out.Encode(line{Backend: name, Result: &result}); err != nil {
				return err
			}
		}
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}

func (r *Run) files() []string {
	var names []string
	for _, b := range backends.All {
		names = append(names, b.Package)
	}
	return append(names, otherLibraries)
}

// read reads a file of JSON, a value a line.
func read[T any](file string) ([]T, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var all []T
	for in := json.NewDecoder(bufio.NewReader(f)); in.More(); {
		var v T
		if err := in.Decode(&v); err != nil {
			return nil, fmt.Errorf("%s: value %d: %w", file, len(all)+1, err)
		}
		all = append(all, v)
	}
	return all, nil
}

// verdict is what is to be said of results of one promise.
type verdict int

const (
	untried verdict = iota
	lacks           // it does not have what is asked for
	unpromised
	held
	lucky // held, where it takes luck to see what is known to be broken
	broken
)

func (v verdict) String() string {
	return [...]string{"not tried", "lacks", "not promised", "held", "held, by luck", "**broken**"}[v]
}

func of(o conformance.Result) verdict {
	switch o.Outcome {
	case conformance.Known, conformance.Unseen:
		if isLack(o.Why) {
			return lacks
		}
		if o.Outcome == conformance.Unseen {
			return lucky
		}
		return broken
	case conformance.Broken:
		return broken
	case conformance.Kept, conformance.Stale:
		return held
	default:
		for _, reason := range []string{"the program does not claim ", "the program claims neither ", "the Locker has no ", "the Harness has no RW"} {
			if strings.HasPrefix(strings.TrimPrefix(o.Seen, "skipped: "), reason) {
				return lacks
			}
		}
		if strings.HasPrefix(o.Seen, "the Harness does not promise") {
			return unpromised
		}
		return untried
	}
}

// isLack reports whether all reasons of a deviation are findings of what a library lacks.
func isLack(why string) bool {
	for _, l := range thirdparty.All() {
		for _, f := range l.Findings {
			if f.Lacks {
				why = strings.ReplaceAll(why, f.Why(), "")
			}
		}
	}
	return strings.Trim(why, "; or") == ""
}

// worst is the verdict on all of them. A backend lacks what all of them ask for, or they are not
// tried.
func worst(results []conformance.Result) verdict {
	v, some := untried, false
	for _, r := range results {
		v = max(v, of(r))
		some = some || of(r) == untried
	}
	if v == lacks && some {
		return untried
	}
	return v
}

// finding is what was seen of a guarantee of a backend in one condition.
type finding struct {
	condition string
	results   []conformance.Result
}

// findings are those of a guarantee, that without a condition first.
func (r *Run) findings(file string, g locker.Guarantee) []finding {
	var all []finding
	for _, result := range r.Results[file] {
		if result.Guarantee != g {
			continue
		}
		i := slices.IndexFunc(all, func(f finding) bool { return f.condition == result.Condition })
		if i < 0 {
			i = len(all)
			all = append(all, finding{condition: result.Condition})
		}
		all[i].results = append(all[i].results, result)
	}
	slices.SortStableFunc(all, func(a, b finding) int { return strings.Compare(a.condition, b.condition) })
	return all
}

// promise is what the backend declares, or nil.
func (r *Run) promise(file string, g locker.Guarantee) *locker.Promise {
	for _, result := range r.Results[file] {
		if result.Guarantee == g && result.Promised != nil {
			return result.Promised
		}
	}
	return nil
}

// contradictions are results that nobody expected, and such that are not what the backend declares.
func (r *Run) contradictions() []error {
	var errs []error
	for _, name := range r.files() {
		for _, s := range r.Results[name] {
			switch s.Outcome {
			case conformance.Broken, conformance.Undecided, conformance.Stale:
				errs = append(errs, fmt.Errorf("%s: %s: %q is %s, which nobody expected", name, s.Test, s.Scenario, s.Outcome))
			}
		}
	}
	for _, b := range backends.All {
		for _, g := range guarantees {
			errs = append(errs, r.contradiction(b, g.Guarantee))
		}
	}
	return errs
}

func (r *Run) contradiction(b backends.Backend, g locker.Guarantee) error {
	p := r.promise(b.Package, g)
	if p == nil {
		return nil
	}
	for _, f := range r.findings(b.Package, g) {
		if worst(f.results) == broken && (p.Level == locker.LevelYes || p.Level == locker.LevelConditional && f.condition == "") {
			where := cmp.Or(f.condition, "nothing amiss")
			return fmt.Errorf("%s declares %q (%v), and the run has seen it broken, with: %s", b.Title, g, p, where)
		}
	}
	return nil
}

// summary is a line for the person who waits.
func (r *Run) summary() string {
	count := map[verdict]int{}
	var operations int64
	doubts := 0
	for _, b := range backends.All {
		for _, s := range r.Results[b.Package] {
			count[of(s)]++
			operations += s.Operations
			if s.Outcome == conformance.Kept && s.Doubts > 0 {
				doubts++
			}
		}
	}
	only := ""
	if doubts > 0 {
		only = fmt.Sprintf(" (%d of them only in some trials)", doubts)
	}
	return fmt.Sprintf("%d held%s, %d broken, %d lacking something, %d not tried, %d not promised, in %d calls to Lockers",
		count[held]+count[lucky], only, count[broken], count[lacks], count[untried], count[unpromised], operations)
}
