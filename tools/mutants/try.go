package main

import (
	"bufio"
	"context"
	"encoding/json"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// suite is the test that takes longest, where a package has it, so that it runs last.
const suite = "TestConformance"

// tester runs tests on mutants.
type tester struct {
	repo    string
	folders map[string]folder
}

// folder is a folder with tests, and what they do without a mutant.
type folder struct {
	dir   string
	limit time.Duration
	fail  []string // these say nothing
}

// prepare runs all tests without a mutant.
func (t *tester) prepare(ctx context.Context, targets []target) {
	t.folders = map[string]folder{}
	dir, err := os.MkdirTemp("", "m")
	check(err)
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "test")
	for _, target := range targets {
		for _, name := range target.tests {
			f := folder{dir: filepath.Join(t.repo, name), limit: 20 * time.Minute}
			if found, _ := filepath.Glob(filepath.Join(f.dir, "*_test.go")); len(found) == 0 {
				continue
			}
			if out, err := f.build(ctx, binary); err != nil && ctx.Err() == nil {
				log.Fatalf("%s does not compile: %s", name, out)
			}
			began := time.Now()
			r := f.run(ctx, binary, false)
			if ctx.Err() != nil {
				return
			}
			took := time.Since(began).Round(time.Second)
			if r.outcome != "unnoticed" && len(r.failed) == 0 {
				log.Fatalf("the tests in %s crash, or take more than %v, without any mutant", name, f.limit)
			}
			for _, test := range r.failed {
				if f.run(ctx, binary, true, "-test.run="+pattern(test)).outcome != "unnoticed" {
					f.fail = append(f.fail, test)
					log.Printf("left out, because it fails without any mutant: %s in %s", test, name)
				}
			}
			f.limit = 3*took + 30*time.Second
			log.Printf("the tests in %s take %v", name, took)
			t.folders[name] = f
			check(os.Remove(binary))
		}
	}
}

// try runs the tests on a mutant until one fails. The one that noticed it before comes first.
func (t *tester) try(ctx context.Context, m mutant, before result) (r result) {
	began := time.Now()
	r = result{ID: m.id, Package: m.of.dir, Where: m.where, Change: m.change, Outcome: "unnoticed"}
	defer func() { r.Seconds = float64(time.Since(began).Milliseconds()) / 1000 }()
	dir, err := os.MkdirTemp("", "m")
	check(err)
	defer os.RemoveAll(dir)
	overlay := write(dir, m)

	names := slices.DeleteFunc(slices.Clone(m.of.tests), func(name string) bool {
		return t.folders[name].dir == "" // it is not there
	})
	built := map[string]bool{}
	look := func(name, run, skip string) bool {
		f, binary := t.folders[name], filepath.Join(dir, strings.ReplaceAll(name, "/", "-")+".test")
		if !built[name] {
			if out, err := f.build(ctx, binary, "-overlay="+overlay); err != nil {
				r.Outcome, r.Test = "invalid", short(string(out))
				return true
			}
			built[name] = true
		}
		if r.Outcome, r.Test = f.notice(ctx, binary, run, skip, &r.Flaky); r.Outcome == "unnoticed" {
			return false
		}
		r.In = name
		return true
	}
	noticedBy := func(name string) bool { return look(name, before.Test, "") }
	if before.Test != "" && (slices.Contains(names, before.In) && noticedBy(before.In) ||
		slices.ContainsFunc(names, noticedBy)) { // it may have moved
		return r
	}
	for _, name := range names {
		if look(name, "", suite) || look(name, suite, "") {
			return r
		}
	}
	return r
}

// write writes the mutant's file, and what has go take it for the real one.
func write(dir string, m mutant) (overlay string) {
	text, err := os.ReadFile(m.file)
	check(err)
	changed := filepath.Join(dir, filepath.Base(m.file))
	check(os.WriteFile(changed, []byte(string(text[:m.begin])+m.with+string(text[m.end:])), 0o600))
	config, err := json.Marshal(map[string]map[string]string{"Replace": {m.file: changed}})
	check(err)
	overlay = filepath.Join(dir, "overlay.json")
	check(os.WriteFile(overlay, config, 0o600))
	return overlay
}

// build compiles the tests.
func (f folder) build(ctx context.Context, binary string, flags ...string) ([]byte, error) {
	flags = append([]string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", binary}, flags...)
	cmd := exec.CommandContext(ctx, "go", flags...)
	cmd.Dir = f.dir
	return cmd.CombinedOutput()
}

// notice runs tests until one fails, and fails again alone: the others may have kept the machine
// busy.
func (f folder) notice(ctx context.Context, binary, run, skip string, flaky *[]string) (how, test string) {
	for range 4 {
		skipped := slices.Concat(f.fail, *flaky)
		if skip != "" {
			skipped = append(skipped, skip)
		}
		args := []string{"-test.skip=" + pattern(skipped...)}
		if run != "" {
			args = append(args, "-test.run="+pattern(run))
		}
		r := f.run(ctx, binary, true, args...)
		if len(r.failed) == 0 { // all is well, or all is over
			return r.outcome, strings.Join(r.running, "|")
		}
		test := r.failed[0]
		top, _, _ := strings.Cut(test, "/")
		for _, alone := range slices.Compact([]string{test, top}) { // a part may need those before
			if f.run(ctx, binary, true, "-test.run="+pattern(alone)).outcome != "unnoticed" {
				return "noticed", test
			}
		}
		*flaky = append(*flaky, test)
	}
	return "unnoticed", ""
}

// pattern returns a regular expression for tests, each of which may be several with | between them.
func pattern(tests ...string) string {
	var all []string
	for _, test := range tests {
		for one := range strings.SplitSeq(test, "|") {
			parts := strings.Split(regexp.QuoteMeta(one), "/")
			all = append(all, "^"+strings.Join(parts, "$/^")+"$")
		}
	}
	return strings.Join(all, "|")
}

// outcome is how a run ended.
type outcome struct {
	outcome string   // noticed, unnoticed, timeout
	failed  []string // tests, without those of which a part failed
	running []string // when it crashed or time was up, if they are few
}

var event = regexp.MustCompile(`^ *(=== (?:RUN|CONT|PAUSE)|--- (?:FAIL|PASS|SKIP):) +([A-Z]\S+)`)

// run runs tests, until the first fails if first is set. The servers that they have started end
// with their process.
func (f folder) run(ctx context.Context, binary string, first bool, args ...string) (r outcome) {
	tmp, err := os.MkdirTemp("", "m") // what tests that are killed leave behind
	check(err)
	defer os.RemoveAll(tmp)
	ctx, cancel := context.WithTimeout(ctx, f.limit)
	defer cancel()
	args = append(args, "-test.v", "-test.paniconexit0", "-test.timeout=0")
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir, cmd.Env = f.dir, append(os.Environ(), "TMPDIR="+tmp, "PWD="+f.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.StdoutPipe()
	check(err)
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		if ctx.Err() == nil {
			log.Fatal(err)
		}
		return outcome{outcome: "unnoticed"} // all is to end
	}
	running := map[string]bool{}
	scanner := bufio.NewScanner(out)
	scanner.Buffer(nil, 1<<24)
	for scanner.Scan() && !(first && len(r.failed) > 0) {
		found := event.FindStringSubmatch(scanner.Text())
		if found == nil {
			continue
		}
		what, test := found[1], found[2]
		delete(running, test)
		switch what {
		case "=== RUN", "=== CONT":
			running[test] = true
		case "--- FAIL:":
			part := func(of string) bool { return strings.HasPrefix(of, test+"/") }
			if !slices.ContainsFunc(r.failed, part) {
				r.failed = append(r.failed, test)
			}
		}
	}
	late := ctx.Err() != nil
	if first && len(r.failed) > 0 {
		_ = cmd.Cancel()
	}
	err = cmd.Wait()
	_ = cmd.Cancel() // what it has left behind
	switch {
	case len(r.failed) > 0:
		r.outcome = "noticed"
	case late:
		r.outcome = "timeout"
	case err != nil:
		r.outcome = "noticed"
	default:
		return outcome{outcome: "unnoticed"}
	}
	if len(running) <= 5 {
		r.running = slices.Sorted(maps.Keys(running))
	}
	return r
}
