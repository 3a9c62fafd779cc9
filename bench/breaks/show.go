package breaks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// session shows breaks, one after the other.
type session struct {
	ctx     context.Context
	root    string // of the repository
	out     io.Writer
	version string // of the library, in place of that in go.mod
	dir     string // for what the session leaves until its end
	program string // the compiled tests of bench/thirdparty; empty: not yet

	head, headName string         // the tree and the commit of today, in which nothing is taken back
	trees          []func() error // which remove them
}

// errUnfit is of a library whose version the tests cannot be compiled with.
var errUnfit = errors.New("its tests cannot be compiled")

// errGone is of a break that was looked for and is not there.
var errGone = errors.New("it does not show")

// Show shows breaks again, in the repository at root, and writes what it sees to out. It returns an
// error that names those that do not show. With a version, other libraries have that one instead of
// the one in go.mod.
func Show(ctx context.Context, root, version string, out io.Writer, some ...Break) error {
	dir, err := os.MkdirTemp("", "locker-breaks-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s := &session{ctx: ctx, root: root, version: version, out: out, dir: dir}
	var failed []string
	for _, b := range some {
		fmt.Fprintf(out, "== %s (%s, %s): %s\n", b.Name, b.Lock, b.By, b.What)
		err := b.shows.show(s)
		if errors.Is(err, errGone) && len(some) > 1 { // machines stand still
			err = b.shows.show(s)
		}
		if errors.Is(err, errUnfit) {
			return err
		}
		if err != nil {
			fmt.Fprintf(out, "NOT SHOWN: %v\n", err)
			failed = append(failed, b.Name)
			continue
		}
		fmt.Fprintln(out, "SHOWN")
	}
	fmt.Fprintf(out, "%d of %d shown\n", len(some)-len(failed), len(some))
	if failed != nil {
		return fmt.Errorf("not shown: %s", strings.Join(failed, ", "))
	}
	return nil
}

// command returns one that finds the servers of make setup, and what it writes.
func (s *session) command(dir, name string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	var out bytes.Buffer
	cmd := exec.CommandContext(s.ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = s.environ()
	cmd.Stdout, cmd.Stderr = &out, &out
	return cmd, &out
}

// environ returns the environment in which tests find the servers of make setup, and leave nothing
// to make nightly, which once was called make check.
func (s *session) environ() []string {
	return append(os.Environ(), "GOWORK=off", "LOCKER_NIGHTLY=1", "LOCKER_CHECK=1", "LOCKER_REQUIRE_SERVERS=1", "LOCKER_REQUIRE_ADAPTERS=1",
		"PATH="+filepath.Join(s.root, ".bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// run runs a command that has to succeed.
func (s *session) run(dir, name string, args ...string) (string, error) {
	cmd, out := s.command(dir, name, args...)
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return strings.TrimSpace(out.String()), nil
}

// verdicts are the lines of go test -v about a test and its subtests.
var verdicts = regexp.MustCompile(`(?m)^\s*--- (PASS|FAIL|SKIP): (\w+)`)

// verdict returns PASS, FAIL or SKIP for a test, or "" if it did not run. A test that panics, or
// runs out of time, has failed.
func verdict(output, test string) string {
	for _, found := range verdicts.FindAllStringSubmatch(output, -1) {
		if found[2] == test {
			return found[1]
		}
	}
	if strings.Contains(output, "=== RUN   "+test+"\n") && strings.Contains(output, "\npanic: ") {
		return "FAIL"
	}
	return ""
}

// show runs the test of the library alone, which passes as long as the finding is there.
func (t third) show(s *session) error {
	if s.program == "" {
		if err := s.compile(t.library.Module); err != nil {
			return fmt.Errorf("%w: %w", errUnfit, err)
		}
	}
	cmd, out := s.command(filepath.Join(s.root, "bench", "thirdparty"), s.program, "-test.v", "-test.run=^"+t.finding.Repro+"$")
	_ = cmd.Run() // the output tells
	fmt.Fprintf(s.out, "%s\n", bytes.TrimSpace(out.Bytes()))
	if got := verdict(out.String(), t.finding.Repro); got != "PASS" {
		return fmt.Errorf("%w: %s of bench/thirdparty: %q", errGone, t.finding.Repro, got)
	}
	return nil
}

// compile compiles the tests of other libraries, one of them in the session's version.
func (s *session) compile(module string) error {
	bench, args := filepath.Join(s.root, "bench"), []string{"test", "-c", "-o", filepath.Join(s.dir, "thirdparty.test")}
	if s.version != "" {
		if module == "" {
			return errors.New("a library of another language has the version that tools/adapters.sh unpacks")
		}
		flags, err := s.replacing(module, module+"@"+s.version)
		if err != nil {
			return err
		}
		args = append(args, flags...)
	}
	if _, err := s.run(bench, "go", append(args, "./thirdparty")...); err != nil {
		return err
	}
	s.program = filepath.Join(s.dir, "thirdparty.test")
	return nil
}

// replacing returns the flags with which bench is compiled with a module replaced by another
// version, or by a directory.
func (s *session) replacing(module, with string) (flags []string, err error) {
	bench, mod := filepath.Join(s.root, "bench"), filepath.Join(s.dir, "other.mod")
	for _, file := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(bench, file))
		if err != nil {
			return nil, err
		}
		text = bytes.ReplaceAll(text, []byte("=> ../"), []byte("=> "+s.root+"/"))
		if err := os.WriteFile(filepath.Join(s.dir, "other"+filepath.Ext(file)), text, 0o644); err != nil {
			return nil, err
		}
	}
	_, err = s.run(bench, "go", "mod", "edit", "-replace="+module+"="+with, mod)
	return []string{"-modfile=" + mod, "-mod=mod"}, err
}

// product is what a bug can be in: no test, and nothing that serves tests.
var (
	product    = regexp.MustCompile(`\.(go|lua)$`)
	notProduct = regexp.MustCompile(`_test\.go$|^(docs|bench|conformance|internal/test|internal/testserver|internal/harness|cmd|examples|tools|api)/`)
)

// changed returns the files of the product that the fix has changed, added or removed.
func (o ours) changed(s *session) ([]string, error) {
	changed, err := s.run(s.root, "git", "diff", "--no-renames", "--name-only", o.fix+"^", o.fix)
	if err != nil {
		return nil, fmt.Errorf("this clone does not have commit %s and the one before: git fetch --unshallow\n%w", o.fix, err)
	}
	return slices.DeleteFunc(strings.Fields(changed), func(file string) bool {
		return !product.MatchString(file) || notProduct.MatchString(file)
	}), nil
}

// tree checks a commit out, beside this tree, until remove is called.
func (s *session) tree(commit string) (dir string, remove func() error, err error) {
	if dir, err = os.MkdirTemp(s.dir, "tree-"); err != nil {
		return "", nil, err
	}
	if _, err := s.run(s.root, "git", "worktree", "add", "--force", "--detach", dir, commit); err != nil {
		return "", nil, err
	}
	remove = func() error {
		always := *s // also after an interrupt
		always.ctx = context.WithoutCancel(s.ctx)
		_, err := always.run(s.root, "git", "worktree", "remove", "--force", dir)
		return err
	}
	if err := os.Symlink(filepath.Join(s.root, ".bin"), filepath.Join(dir, ".bin")); err != nil {
		return "", nil, errors.Join(err, remove())
	}
	return dir, remove, nil
}

// show checks out the commit that fixed the bug, where the test has to pass, and without the fix,
// where it has to fail.
func (o ours) show(s *session) (err error) {
	changed, err := o.changed(s)
	if err != nil {
		return err
	}
	tree, remove, err := s.tree(o.fix)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	if err := apply(tree, o.edits); err != nil && !errors.Is(err, errNoEdit) {
		return err
	}
	if got, out := o.try(s, tree); got != "PASS" {
		return fmt.Errorf("%s passes at commit %s, which has the fix: %q\n%s", o.test, o.fix, got, out)
	}
	for _, file := range changed {
		if _, err := s.run(tree, "git", "checkout", o.fix+"^", "--", file); err != nil { // the fix has added it
			if err := os.Remove(filepath.Join(tree, file)); err != nil {
				return err
			}
		}
	}
	got, out := o.try(s, tree)
	fmt.Fprintln(s.out, out)
	if got != "FAIL" {
		return fmt.Errorf("%w: %s without the fix: %q", errGone, o.test, got)
	}
	return nil
}

// try runs the test in a tree.
func (o ours) try(s *session, tree string) (verdictOf, output string) {
	return s.tryTest(filepath.Join(tree, o.dir), o.test)
}

// tryTest runs a test of the package in dir.
func (s *session) tryTest(dir, test string) (verdictOf, output string) {
	cmd, out := s.command(dir, "go", "test", "-v", "-count=1", "-vet=off", "-timeout=5m", "-run=^"+test+"$", ".")
	_ = cmd.Run() // the output tells
	return verdict(out.String(), test), strings.TrimSpace(out.String())
}
