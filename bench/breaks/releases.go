package breaks

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-locker/locker/bench/thirdparty"
)

// Release is a version of another library, older than that in go.mod, that is known to be broken.
type Release struct {
	Lock    string // the library
	Version string // the last one that is broken so
	What    string
	Fixed   string // in which version
	Source  string // where that is told

	test    string // which puts it through the suite
	changes []edit // of the library in go.mod, in place of an older version
}

// Releases are those that can be had. Others are told of by their authors, and compile with no
// client of today.
var Releases = []Release{
	{
		Lock: "redsync", Version: "v4.12.1", Fixed: "v4.13.0", test: "TestRedsync",
		What:   "TryLock of a lock that is taken says only that it failed, not that it was taken",
		Source: "https://github.com/go-redsync/redsync/pull/156",
	},
	{
		Lock: "redsync", Version: "v4.12.0", Fixed: "v4.12.1", test: "TestRedsync_threeNodes",
		What:   "an Extend that one node does not answer gives the lock back at all nodes, and the holder is not told",
		Source: "https://github.com/go-redsync/redsync/pull/151",
	},
	{
		Lock: "redsync", Version: "v4.7.0", Fixed: "v4.7.1", test: "TestRedsync",
		What:   "Lock does not wait: it fails at once if all nodes say that the lock is taken",
		Source: "https://github.com/go-redsync/redsync/commit/3d3e3d5",
		changes: []edit{{
			"mutex.go",
			"				return m.acquire(ctx, pool, value)\n			})\n		}()\n",
			"				return m.acquire(ctx, pool, value)\n			})\n		}()\n		if n == 0 && err != nil {\n			return err\n		}\n",
		}},
	},
	{
		Lock: "redislock", Version: "v0.9.4", Fixed: "v0.10.0", test: "TestRedislock",
		What:   "an Obtain whose ctx ends while it waits does not say that the lock was taken",
		Source: "https://github.com/bsm/redislock/pull/88",
	},
	{
		Lock: "rueidislock", Version: "v1.0.69", Fixed: "v1.0.70", test: "TestRueidislock",
		What:   "a renewal should set the expiry to one KeyValidity from now, but sets it to the time of the next renewal plus the rest of the old time",
		Source: "https://github.com/redis/rueidis/issues/923",
	},
	{
		Lock: "rueidislock", Version: "v1.0.49", Fixed: "v1.0.50", test: "TestRueidislock",
		What:   "sometimes a waiter is not registered for the release that it waits for, and goes on waiting",
		Source: "https://github.com/redis/rueidis/pull/669",
	},
	{
		Lock: "rueidislock", Version: "v1.0.43", Fixed: "v1.0.44", test: "TestRueidislock",
		What:   "a WithContext asks without a pause while others contend, and Close may deadlock or panic",
		Source: "https://github.com/redis/rueidis/pull/604",
	},
	{
		Lock: "rueidislock", Version: "v1.0.27", Fixed: "v1.0.28", test: "TestRueidislock",
		What:   "a waiter waits for ever if nobody else has the lock any more",
		Source: "https://github.com/redis/rueidis/commit/3df98dd",
	},
	{
		Lock: "rueidislock", Version: "v1.0.18", Fixed: "v1.0.19", test: "TestRueidislock",
		What:   "after a FLUSHALL a waiter sends requests without end",
		Source: "https://github.com/redis/rueidis/commit/4e74bce",
	},
	{
		Lock: "rueidislock", Version: "v1.0.11", Fixed: "v1.0.12", test: "TestRueidislock",
		What:   "after TryWithContext has taken a hold, the release of this hold hangs",
		Source: "https://github.com/redis/rueidis/commit/4816b0e",
	},
	{
		Lock: "concurrency.Mutex", Version: "v3.4.3", Fixed: "v3.5.0", test: "TestConcurrencyMutex",
		What:   "if the session of a Lock ends while it waits, this Lock is granted all the same; so is the next in the queue, and two hold",
		Source: "https://jepsen.io/analyses/etcd-3.4.3",
		changes: []edit{{
			"concurrency/mutex.go",
			"	gresp, werr := client.Get(ctx, m.myKey)\n	if werr != nil {\n		m.Unlock(client.Ctx())\n		return werr\n	}\n\n" +
				"	if len(gresp.Kvs) == 0 { // is the session key lost?\n		return ErrSessionExpired\n	}\n	m.hdr = gresp.Header\n",
			"	m.hdr = resp.Header\n",
		}},
	},
}

// Name returns what Judge is told.
func (r Release) Name() string { return r.Lock + "@" + r.Version }

// Changed reports whether its bug was put into the library in go.mod, because that version compiles
// with nothing else here.
func (r Release) Changed() bool { return r.changes != nil }

// library returns that of bench/thirdparty.
func (r Release) library() thirdparty.Library {
	all := thirdparty.All()
	return all[slices.IndexFunc(all, func(l thirdparty.Library) bool { return l.Test == r.test })]
}

// prepare compiles the tests of other libraries with the version that is broken, and with the one
// that has the fix.
func (r Release) prepare(s *session, j *Judgement) (broken suite, sound func() (suite, error), err error) {
	j.Suite, j.Way, j.Commit = "thirdparty."+r.test, Old, s.headName
	module := r.library().Module
	if r.Changed() {
		j.Way = ByHand
		changed, err := s.changed(module, r.changes)
		if err != nil {
			return suite{}, nil, err
		}
		broken, err = s.compileRelease(r, changed)
		return broken, func() (suite, error) { return s.compileRelease(r, "") }, err
	}
	broken, err = s.compileRelease(r, module+"@"+r.Version)
	return broken, func() (suite, error) { return s.compileRelease(r, module+"@"+r.Fixed) }, err
}

// compileRelease compiles the tests of other libraries with another version of one of them, or with
// a directory in its place, or, if that is empty, as they are.
func (s *session) compileRelease(r Release, with string) (t suite, err error) {
	dir := filepath.Join(s.root, "bench", "thirdparty")
	t = s.suite(filepath.Join(s.dir, "thirdparty-"+filepath.Base(with)+".test"), dir, place{test: "^" + r.test + "$"})
	if _, err := os.Stat(t.program); err == nil {
		return t, nil
	}
	var flags []string
	if with != "" {
		if flags, err = s.replacing(r.library().Module, with); err != nil {
			return t, err
		}
		// The tests of its findings use what the version may not have.
		files, err := filepath.Glob(filepath.Join(dir, "repro_*_test.go"))
		if err != nil {
			return t, err
		}
		over, err := s.overlay(files)
		if err != nil {
			return t, err
		}
		flags = append(flags, over)
	}
	_, err = s.run(filepath.Join(s.root, "bench"), "go", append(append([]string{"test", "-c", "-vet=off", "-o", t.program}, flags...), "./thirdparty")...)
	return t, err
}

// overlay returns the flag with which some files are left out.
func (s *session) overlay(without []string) (flag string, err error) {
	replaced := map[string]string{}
	for _, file := range without {
		replaced[file] = ""
	}
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	file := filepath.Join(s.dir, "overlay.json")
	return "-overlay=" + file, os.WriteFile(file, text, 0o644)
}

// changed returns a copy of the module in go.mod with some changes.
func (s *session) changed(module string, changes []edit) (dir string, err error) {
	from, err := s.run(filepath.Join(s.root, "bench"), "go", "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return "", err
	}
	dir = filepath.Join(s.dir, strings.ReplaceAll(module, "/", "-"))
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		return "", fmt.Errorf("copy %s: %w", module, err)
	}
	for _, e := range changes { // files of the module cache are not to be written to
		if err := os.Chmod(filepath.Join(dir, e.file), 0o644); err != nil {
			return "", err
		}
	}
	return dir, apply(dir, changes)
}
