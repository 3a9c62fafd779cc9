package breaks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// place is the test that puts a lock through the suite.
type place struct {
	dir, test string
	nightly   bool
}

// suites are the usual ones, by what a break is in.
var suites = map[string]place{
	"core": {"redis", "^TestConformance$", false}, "keyed": {"redis", "^TestConformance$", false},
	"Redis":   {"redis", "^TestConformance$", false},
	"Redlock": {"redlock", "^TestConformance$", false}, "etcd": {"etcd", "^TestConformance$", false},
	"ZooKeeper": {"zookeeper", "^TestConformance$", false}, "PostgreSQL": {"postgres", "^TestConformance$", false},
}

// on names breaks that one server of the usual suite, or a backend without sessions, cannot have.
var on = map[string]place{
	"core-session-heard-of-in-the-last-moment-keeps-the-lock": {"etcd", "^TestConformance$", false},

	"redis-waiter-loses-its-place":                 {"redis", "^TestConformance$/^Cluster$", true},
	"redis-clocks-of-a-cluster-shorten-holds":      {"redis", "^TestConformance$/^Cluster$", true},
	"redis-unlock-after-a-failover-says-nil":       {"redis", "^TestConformance$/^Sentinel$", true},
	"redis-first-unlock-after-a-failover-says-nil": {"redis", "^TestConformance$/^Sentinel$", true},
}

// suspect is a lock that is known to be broken.
type suspect interface {
	// prepare compiles its suite, and returns a function that does so for the lock without the
	// break.
	prepare(s *session, j *Judgement) (broken suite, sound func() (suite, error), err error)
}

// Judge puts locks that are known to be broken through the suite, in the repository at root, one
// after the other, for as long as limit each. Each judgement goes to told as it is made. The names
// are those of breaks of this module, and of Releases.
func Judge(ctx context.Context, root string, limit time.Duration, out io.Writer, names []string, told func(Judgement) error) (err error) {
	dir, err := os.MkdirTemp("", "locker-judge-")
	if err != nil {
		return err
	}
	s := &session{ctx: ctx, root: root, out: out, dir: dir}
	defer func() { err = errors.Join(err, s.removeTrees(0), os.RemoveAll(dir)) }()
	if s.headName, err = s.run(root, "git", "rev-parse", "--short", "HEAD"); err != nil {
		return err
	}
	if s.head, err = s.keptTree(s.headName); err != nil {
		return err
	}
	for _, name := range names {
		x, err := suspectOf(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "== %s\n", name)
		j := s.judge(name, x, limit)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		fmt.Fprintln(out, j)
		if err := errors.Join(told(j), s.removeTrees(1)); err != nil { // but for that of today
			return err
		}
	}
	return nil
}

func suspectOf(name string) (suspect, error) {
	if i := slices.IndexFunc(own, func(o ours) bool { return o.name == name }); i >= 0 {
		return own[i], nil
	}
	if i := slices.IndexFunc(Releases, func(r Release) bool { return r.Name() == name }); i >= 0 {
		return Releases[i], nil
	}
	return nil, fmt.Errorf("no lock is called %q whose break can be judged", name)
}

// Judged returns the names of all that Judge takes: breaks of this module, the latest first, and
// Releases.
func Judged() []string {
	var names []string
	for _, o := range own {
		names = append(names, o.name)
	}
	for _, r := range Releases {
		names = append(names, r.Name())
	}
	return names
}

// tries is how many of the scenarios that fail are looked at again.
const tries = 8

func (s *session) judge(name string, x suspect, limit time.Duration) Judgement {
	j := Judgement{Name: name}
	broken, sound, err := x.prepare(s, &j)
	if err == nil {
		err = s.putThrough(&j, limit, broken, sound)
	}
	if err != nil {
		j.Failed = firstLines(err)
	}
	return j
}

// putThrough runs the suite. While that goes on it looks again at what has failed, and ends the run
// when a scenario that was not made for the break has found it.
func (s *session) putThrough(j *Judgement, limit time.Duration, broken suite, sound func() (suite, error)) (err error) {
	ctx, cancel := context.WithTimeout(s.ctx, limit)
	defer cancel()
	failures := make(chan failure, 1000)
	var seen *report
	var failed error
	go func() {
		defer close(failures)
		seen, failed = broken.run(ctx, func(f failure) { failures <- f })
	}()
	for f := range failures {
		if err != nil || j.Found != "" || len(j.Doubtful) == tries || slices.Contains(Since(j.Name), f.scenario()) {
			continue
		}
		if err = s.confirm(j, f, broken, sound); err != nil || j.Found != "" {
			cancel()
		}
	}
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	j.Took, j.Whole = seconds(seen.took), seen.whole
	switch {
	case j.Found != "":
	case seen.crashed != "":
		j.Found, j.After, j.Seen = "the process ends", j.Took, short(seen.crashed)
	case seen.passed+len(seen.failed) == 0:
		return errors.New("no scenario was run")
	}
	return nil
}

// confirm notes that a scenario has found the break, if it fails again by itself, and passes
// without the break.
func (s *session) confirm(j *Judgement, f failure, broken suite, sound func() (suite, error)) error {
	again, err := broken.again(s.ctx, f)
	if err != nil {
		return err
	}
	if len(again.failed) > 0 && !again.idle {
		without, err := sound()
		if err != nil {
			return err
		}
		fine, err := without.again(s.ctx, f)
		if err != nil {
			return err
		}
		if fine.passed > 0 && len(fine.failed) == 0 {
			j.Found, j.After, j.Seen, j.Again = f.scenario(), seconds(f.after), short(again.seen), len(again.failed)
			return nil
		}
	}
	j.Doubtful = append(j.Doubtful, f.scenario())
	return nil
}

func seconds(d time.Duration) float64 {
	return float64(d.Round(100*time.Millisecond)) / float64(time.Second)
}

// short is what a person reads of a line, in which nothing is another each time.
func short(text string) string {
	const enough = 240
	if len(text) > enough {
		text = text[:strings.LastIndexByte(text[:enough], ' ')] + " …"
	}
	return text
}

// firstLines returns an error without the rest of what a compiler has to say.
func firstLines(err error) string {
	lines := strings.Split(err.Error(), "\n")
	return short(strings.Join(lines[:min(4, len(lines))], "; "))
}

// prepare takes the fix back in the code of today, if that brings the bug back. If not, it takes
// the commit before the fix.
func (o ours) prepare(s *session, j *Judgement) (broken suite, sound func() (suite, error), err error) {
	at, ok := on[o.name]
	if !ok {
		at = suites[o.lock]
	}
	j.Suite = at.dir + "." + strings.NewReplacer("^", "", "$", "").Replace(at.test)
	tree, way, err := s.withBug(o)
	if err != nil {
		return suite{}, nil, err
	}
	if tree != "" {
		j.Way, j.Commit = way, s.headName
		broken, err = s.compileSuite(tree, at)
		return broken.withDoubts(), func() (suite, error) {
			sound, err := s.compileSuite(s.head, at)
			return sound.withDoubts(), err
		}, err
	}
	j.Way, j.Commit = Before, o.fix+"^"
	before, err := s.keptTree(o.fix + "^")
	if err != nil {
		return suite{}, nil, err
	}
	broken, err = s.compileSuite(before, at)
	return broken, func() (suite, error) {
		with, err := s.keptTree(o.fix)
		if err != nil {
			return suite{}, err
		}
		return s.compileSuite(with, at)
	}, err
}

// removeTrees removes those that were kept, but for the first few.
func (s *session) removeTrees(few int) (err error) {
	for ; len(s.trees) > few; s.trees = s.trees[:len(s.trees)-1] {
		err = errors.Join(err, s.trees[len(s.trees)-1]())
	}
	return err
}

// keptTree checks a commit out, until the judgement is made.
func (s *session) keptTree(commit string) (string, error) {
	dir, remove, err := s.tree(commit)
	if err == nil {
		s.trees = append(s.trees, remove)
	}
	return dir, err
}

// withBug returns a tree of today in which the bug is back, or "" if there is none.
func (s *session) withBug(o ours) (tree string, way Way, err error) {
	for _, w := range []struct {
		way  Way
		take func(tree string) error
	}{{Reversed, func(tree string) error { return o.reverse(s, tree) }}, {ByHand, func(tree string) error { return apply(tree, today[o.name]) }}} {
		tree, err := s.keptTree(s.headName)
		if err != nil {
			return "", "", err
		}
		if err := w.take(tree); err != nil {
			fmt.Fprintf(s.out, "%s: %s\n", w.way, firstLines(err))
			continue
		}
		if pkg, test := o.guard(); test != "" {
			got, out := s.tryTest(filepath.Join(tree, pkg), test)
			if got != "FAIL" {
				fmt.Fprintf(s.out, "%s: %s, which looks for it: %q\n%s\n", w.way, test, got, short(out))
				continue
			}
		}
		return tree, w.way, nil
	}
	return "", "", nil
}

// reverse takes the fix back as git does.
func (o ours) reverse(s *session, tree string) error {
	files, err := o.changed(s)
	if err != nil {
		return err
	}
	// Not by s.run, which trims what a patch ends with.
	cmd, patch := s.command(tree, "git", append([]string{"diff", "--binary", o.fix + "^", o.fix, "--"}, files...)...)
	if err := cmd.Run(); err != nil {
		return err
	}
	text := patch.Bytes()
	cmd, said := s.command(tree, "git", "apply", "--reverse", "--3way", "-")
	cmd.Stdin = bytes.NewReader(text)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("git does not take it back: %w: %s", err, strings.TrimSpace(said.String()))
	}
	return nil
}

// edit is a change of one place in a file.
type edit struct{ file, old, new string }

var errNoEdit = errors.New("nobody has taken it back by hand")

// apply makes changes in a tree.
func apply(tree string, all []edit) error {
	if len(all) == 0 {
		return errNoEdit
	}
	for _, e := range all {
		file := filepath.Join(tree, e.file)
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if n := bytes.Count(text, []byte(e.old)); n != 1 {
			return fmt.Errorf("%s has %d places with %q", e.file, n, e.old)
		}
		if err := os.WriteFile(file, bytes.Replace(text, []byte(e.old), []byte(e.new), 1), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// guard returns the package and the name of a test of today that looks for the bug.
func (o ours) guard() (dir, test string) {
	for _, name := range o.entry().Looks {
		dir, test, ok := strings.Cut(name, ".")
		if ok && !strings.Contains(name, " ") {
			return dirOf(dir), test
		}
	}
	return "", ""
}

// dirOf returns the folder of a package, by the name that tables have.
func dirOf(name string) string {
	if dir, ok := map[string]string{"core": core, "redisscript": "internal/redisscript"}[name]; ok {
		return dir
	}
	return name
}
