package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// limit is how long the tests of a package may take: several times as long as they do.
const limit = 10 * time.Minute

// suite is the test that takes longest, where a package has it, so that it runs last.
const suite = "^TestConformance$"

// try runs the tests on a mutant until one fails. The failure has to come again when that test runs alone: the others may have kept
// the machine busy.
func try(repo string, m mutant, before result) (r result) {
	began := time.Now()
	r = result{ID: m.id, Package: m.of.dir, Where: m.where, Change: m.change, Outcome: "unnoticed"}
	defer func() { r.Seconds = seconds(began) }()
	dir, err := os.MkdirTemp("", "mutant")
	check(err)
	defer os.RemoveAll(dir)
	overlay := write(dir, m)
	packages := m.of.tests
	if before.Test != "" { // the one that has the test first
		packages = append([]string{before.In}, packages...)
	}
	for i, p := range packages {
		if _, err := os.Stat(filepath.Join(repo, p)); err != nil {
			continue
		}
		binary := filepath.Join(dir, "test")
		build := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", binary, "./"+relative(m.of.module, p))
		build.Dir = filepath.Join(repo, m.of.module)
		if out, err := build.CombinedOutput(); err != nil {
			if strings.Contains(string(out), "no such file") && i == 0 && before.Test != "" {
				continue
			}
			r.Outcome = "invalid"
			return r
		}
		t := tests{binary, filepath.Join(repo, p), nil}
		runs := [][]string{{"-test.skip=" + suite}, {"-test.run=" + suite}}
		if i == 0 && before.Test != "" {
			runs = [][]string{{"-test.run=^" + before.Test + "$"}}
		}
		for _, args := range runs {
			if r.Test, r.Outcome = t.fail(args); r.Outcome != "unnoticed" {
				r.In = p
				return r
			}
		}
	}
	return r
}

// relative returns a package's folder as its module has it.
func relative(module, p string) string {
	rel, err := filepath.Rel(module, p)
	check(err)
	return rel
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

// tests are those of a package, built with the mutant.
type tests struct {
	binary, dir string
	flaky       []string
}

// fail returns the first test that fails, and fails again alone.
func (t *tests) fail(args []string) (test, outcome string) {
	for {
		test, outcome = t.run(args)
		if outcome != "noticed" || test == "" { // all is well, or all is over: a panic is no test's
			return test, outcome
		}
		if _, again := t.run([]string{"-test.run=^" + test + "$"}); again != "unnoticed" {
			return test, "noticed"
		}
		t.flaky = append(t.flaky, "^"+test+"$")
		if len(t.flaky) > 3 {
			return "", "unnoticed"
		}
	}
}

var failed = regexp.MustCompile(`^--- FAIL: (\w+)`)

// run runs tests until the first fails. The servers that they have started end with their process.
func (t *tests) run(args []string) (test, outcome string) {
	args = append([]string{"-test.failfast", "-test.paniconexit0", "-test.timeout=" + limit.String()}, args...)
	if len(t.flaky) > 0 && !strings.HasPrefix(args[len(args)-1], "-test.run") {
		args[len(args)-1] += "|" + strings.Join(t.flaky, "|")
	}
	cmd := exec.Command(t.binary, args...)
	cmd.Dir = t.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	check(err)
	cmd.Stderr = cmd.Stdout
	check(cmd.Start())
	kill := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	late := time.AfterFunc(limit+time.Minute, kill)
	defer late.Stop()
	timedOut, bad := false, false
	scanner := bufio.NewScanner(out)
	scanner.Buffer(nil, 1<<24)
	for scanner.Scan() {
		line := scanner.Text()
		timedOut = timedOut || strings.HasPrefix(line, "panic: test timed out")
		bad = bad || strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
		if found := failed.FindStringSubmatch(line); found != nil {
			test = found[1]
			kill()
			break
		}
	}
	err = cmd.Wait()
	kill() // what it has left behind
	switch {
	case test != "":
		return test, "noticed"
	case timedOut:
		return "", "timeout"
	case err != nil || bad:
		return "", "noticed"
	}
	return "", "unnoticed"
}
