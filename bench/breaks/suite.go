package breaks

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// suite is a compiled test that puts a lock through the conformance suite.
type suite struct {
	program string
	dir     string // where it runs
	test    string // as -test.run has it
	env     []string
	flags   []string
}

// withDoubts returns the suite as it judges locks of others: what is seen in some trials only may
// be the fault of a machine that is busy, and counts for nothing.
func (t suite) withDoubts() suite {
	t.flags = []string{"-conformance.doubts=4"}
	return t
}

// failure is a scenario that failed.
type failure struct {
	test  string        // the subtest
	after time.Duration // from the start of the suite
}

// scenario returns the name of the scenario, as its subtest has it.
func (f failure) scenario() string {
	return strings.ReplaceAll(f.test[strings.LastIndexByte(f.test, '/')+1:], "_", " ")
}

// report is what a run of the suite has printed.
type report struct {
	failed  []failure // in the order in which they failed
	passed  int       // scenarios
	crashed string    // how the process ended, if it was by a panic
	seen    string    // what the last scenario that failed has seen
	idle    bool      // a scenario failed that has seen no promise broken
	took    time.Duration
	whole   bool // it has come to its end

	ended []string // all tests
	told  func(failure)
}

// run runs the suite until its end, or that of ctx. Each failure goes to told at once.
func (t suite) run(ctx context.Context, told func(failure), flags ...string) (*report, error) {
	// In this form package testing tells of each subtest when that has ended.
	cmd := exec.CommandContext(ctx, t.program, append([]string{"-test.v=test2json", "-test.timeout=0", "-test.run=" + t.test}, slices.Concat(t.flags, flags)...)...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = t.dir, t.env, 5*time.Second
	in, out := io.Pipe()
	cmd.Stdout, cmd.Stderr = out, out
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait() // the output tells how it ended
		_ = out.Close()
	}()
	r := readReport(in, func() time.Duration { return time.Since(began) }, told)
	r.took, r.whole = time.Since(began), ctx.Err() == nil
	if ctx.Err() == nil && r.crashed == "" && len(r.ended) == 0 {
		return nil, fmt.Errorf("%s: no test was run", t.test)
	}
	return r, nil
}

var (
	testEnds = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+) \(`)
	crashes  = regexp.MustCompile(`^(panic|fatal error): .*`)
	noBreach = regexp.MustCompile(`take it off the list|^\s*undecided: `) // why a scenario fails that has seen no promise broken
)

// readReport reads what a test binary prints. now is the time since it was started.
func readReport(in io.Reader, now func() time.Duration, told func(failure)) *report {
	r := &report{told: told}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		r.read(strings.TrimLeft(strings.TrimRight(line, "\n"), "\x16\x0e\x0f"), now)
		if err != nil {
			return r
		}
	}
}

func (r *report) read(line string, now func() time.Duration) {
	if found := crashes.FindString(line); found != "" && r.crashed == "" {
		r.crashed = found
	}
	r.idle = r.idle || noBreach.MatchString(line)
	if _, seen, ok := strings.Cut(line, "seen: "); ok {
		r.seen = strings.TrimRight(seen, "\x0e\x0f ")
	}
	found := testEnds.FindStringSubmatch(line)
	if found == nil {
		return
	}
	verdict, test := found[1], found[2]
	// A test comes after its subtests: one without is a scenario.
	isScenario := strings.Contains(test, "/") && !slices.ContainsFunc(r.ended, func(other string) bool { return strings.HasPrefix(other, test+"/") })
	r.ended = append(r.ended, test)
	switch {
	case !isScenario:
	case verdict == "PASS":
		r.passed++
	case verdict == "FAIL":
		f := failure{test, now()}
		r.failed = append(r.failed, f)
		r.told(f)
	}
}

// again runs one scenario three times, by itself.
func (t suite) again(ctx context.Context, f failure) (*report, error) {
	var path []string
	for name := range strings.SplitSeq(f.test, "/") {
		path = append(path, "^"+regexp.QuoteMeta(name)+"$")
	}
	t.test = strings.Join(path, "/")
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	return t.run(ctx, func(failure) {}, "-test.count=3")
}

// suite returns the one that a program has, which runs in dir.
func (s *session) suite(program, dir string, at place) suite {
	t := suite{program: program, dir: dir, test: at.test, env: s.environ()}
	if !at.nightly {
		t.env = append(t.env, "LOCKER_NIGHTLY=", "LOCKER_CHECK=")
	}
	return t
}

// compileSuite compiles the tests of a package in a tree, once.
func (s *session) compileSuite(tree string, at place) (suite, error) {
	t := s.suite(filepath.Join(tree, at.dir+".test"), filepath.Join(tree, at.dir), at)
	if _, err := os.Stat(t.program); err == nil {
		return t, nil
	}
	// The paths are the same in each tree, so that what is alike is compiled once.
	_, err := s.run(t.dir, "go", "test", "-c", "-trimpath", "-vet=off", "-o", t.program, ".")
	return t, err
}
