package breaks

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/bench/thirdparty"
)

// A fix that was taken back by hand has to be taken back in the code of each day.
func TestToday_canBeApplied(t *testing.T) {
	for name, edits := range today {
		for _, e := range edits {
			text, err := os.ReadFile(filepath.Join("..", "..", e.file))
			require.NoError(t, err, name)
			assert.Equal(t, 1, strings.Count(string(text), e.old), "%s: the line in %s is another now: %q", name, e.file, e.old)
		}
		assert.Contains(t, Judged(), name)
	}
	for name := range beyond {
		assert.Contains(t, Judged(), name)
	}
	for name := range on {
		assert.Contains(t, Judged(), name)
	}
	for _, o := range own {
		assert.True(t, on[o.name].dir != "" || suites[o.lock].dir != "", "no suite for %s", o.name)
	}
}

func TestReleases_haveTheirTests(t *testing.T) {
	for _, r := range Releases {
		require.True(t, slices.ContainsFunc(thirdparty.All(), func(l thirdparty.Library) bool { return l.Test == r.test }), "no library has the test %s", r.test)
		assert.NotEmpty(t, r.library().Module, r.Name())
	}
}

// What package testing prints in the form of test2json, and its marks.
func TestReport(t *testing.T) {
	const output = "\x16=== RUN   TestConformance\n\x16=== RUN   TestConformance/one_server\n" +
		"\x16=== RUN   TestConformance/one_server/two_at_once\n" +
		"    result.go:9: \n        promise: one.\n        seen: A and B\n" +
		"\x16    --- FAIL: TestConformance/one_server/two_at_once (0.10s)\n" +
		"\x16--- PASS: TestConformance/one_server/TryLock,_once (0.10s)\n" +
		"\x16--- SKIP: TestConformance/one_server/a_slot_moves (0.00s)\n" +
		"\x16--- FAIL: TestConformance/one_server (1.00s)\n\x16--- FAIL: TestConformance (1.00s)\nFAIL\n"
	var told []failure
	r := readReport(strings.NewReader(output), func() time.Duration { return time.Second }, func(f failure) { told = append(told, f) })
	assert.Equal(t, told, r.failed)
	require.Equal(t, []failure{{"TestConformance/one_server/two_at_once", time.Second}}, r.failed, "a test with subtests is none")
	assert.Equal(t, "two at once", r.failed[0].scenario())
	assert.Equal(t, 1, r.passed)
	assert.Equal(t, "A and B", r.seen)
	assert.False(t, r.idle)
	assert.Empty(t, r.crashed)

	r = readReport(strings.NewReader("listed as a deviation, but the promise is kept: take it off the list\npanic: close of nil channel\n\ngoroutine 1"), func() time.Duration { return 0 }, nil)
	assert.True(t, r.idle, "that an old version keeps more is no breach")
	assert.Equal(t, "panic: close of nil channel", r.crashed)
}

// script is a suite that prints something, whatever it is asked for: first the first text.
func script(t *testing.T, outputs ...string) suite {
	t.Helper()
	dir := t.TempDir()
	for i, output := range outputs {
		require.NoError(t, os.WriteFile(filepath.Join(dir, strings.Repeat("x", i+1)), []byte(output), 0o600))
	}
	// Each run removes the first of the files, but the last.
	text := "#!/bin/sh\nset -- x*\nsays=$(cat $1)\n[ $# = 1 ] || rm $1\nprintf '%s\\n' \"$says\"\n"
	program := filepath.Join(dir, "suite")
	require.NoError(t, os.WriteFile(program, []byte(text), 0o700)) //nolint:gosec // it is run
	return suite{program: program, dir: dir, test: "^TestConformance$"}
}

func TestPutThrough(t *testing.T) {
	const (
		a, b = "TestConformance/a_scenario", "TestConformance/b_scenario"
		fail = "seen: two\n--- FAIL: "
		pass = "--- PASS: "
		end  = " (0.00s)\n"
	)
	for name, c := range map[string]struct {
		whole, again, sound []string
		found               string
		doubtful            []string
	}{
		"found":                             {[]string{fail + a + end}, []string{pass + a + end + fail + a + end}, []string{pass + a + end}, "a scenario", nil},
		"fails with the fix too":            {[]string{fail + a + end}, []string{fail + a + end}, []string{fail + a + end}, "", []string{"a scenario"}},
		"the fix's suite does not have it":  {[]string{fail + a + end}, []string{fail + a + end}, []string{"--- PASS: TestConformance (0.00s)\n"}, "", []string{"a scenario"}},
		"fails once, and not by itself":     {[]string{fail + a + end}, []string{pass + a + end}, []string{pass + a + end}, "", []string{"a scenario"}},
		"the second of two":                 {[]string{fail + a + end + fail + b + end}, []string{pass + a + end, fail + b + end}, []string{pass + b + end}, "b scenario", []string{"a scenario"}},
		"the one that was made for it":      {[]string{fail + "TestConcurrencyMutex/" + strings.ReplaceAll(Since("concurrency.Mutex@v3.4.3")[0], " ", "_") + end}, nil, nil, "", nil},
		"nothing fails":                     {[]string{pass + a + end}, nil, nil, "", nil},
		"the process ends":                  {[]string{"panic: nil\n"}, nil, nil, "the process ends", nil},
		"a deviation that is there no more": {[]string{fail + a + end}, []string{"take it off the list\n" + fail + a + end}, nil, "", []string{"a scenario"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &session{ctx: t.Context()}
			j := Judgement{Name: "concurrency.Mutex@v3.4.3"}
			broken, sound := script(t, append(c.whole, c.again...)...), func() (suite, error) { return script(t, c.sound...), nil }
			require.NoError(t, s.putThrough(&j, time.Minute, broken, sound))
			assert.Equal(t, c.found, j.Found)
			assert.Equal(t, c.doubtful, j.Doubtful)
		})
	}
}

func TestReport_ofARunThatIsCutOff(t *testing.T) {
	program := filepath.Join(t.TempDir(), "suite")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\necho '--- FAIL: TestConformance/a_scenario (0.00s)'\nexec sleep 600\n"), 0o700)) //nolint:gosec // it is run
	ctx, cancel := context.WithCancel(t.Context())
	r, err := suite{program: program, dir: t.TempDir()}.run(ctx, func(failure) { cancel() })
	require.NoError(t, err)
	assert.False(t, r.whole)
	assert.Len(t, r.failed, 1, "what was seen by then counts")
}

func TestApply(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) { require.NoError(t, os.WriteFile(filepath.Join(dir, "a.go"), []byte(text), 0o600)) }
	write("one two three")
	require.NoError(t, apply(dir, []edit{{"a.go", "two", "2"}, {"a.go", "one", "1"}}))
	text, err := os.ReadFile(filepath.Join(dir, "a.go"))
	require.NoError(t, err)
	assert.Equal(t, "1 2 three", string(text))
	require.ErrorContains(t, apply(dir, []edit{{"a.go", "two", "2"}}), "0 places")
	write("two two")
	require.ErrorContains(t, apply(dir, []edit{{"a.go", "two", "2"}}), "2 places")
	require.ErrorIs(t, apply(dir, nil), errNoEdit)
}

func TestSaveJudgement(t *testing.T) {
	file := filepath.Join(t.TempDir(), JudgementsFile)
	first, last := Judged()[0], Releases[len(Releases)-1].Name()
	require.NoError(t, SaveJudgement(file, Judgement{Name: last, Way: Old}))
	require.NoError(t, SaveJudgement(file, Judgement{Name: first}))
	require.NoError(t, SaveJudgement(file, Judgement{Name: last, Found: "two at once"}))
	all, err := ReadJudgements(file)
	require.NoError(t, err)
	assert.Equal(t, []Judgement{{Name: first}, {Name: last, Found: "two at once"}}, all, "in the order of Judged, each once, the latest")
}

// The reversal is that of the product alone, in a repository whose tests have gone on.
func TestReverse(t *testing.T) {
	s := &session{ctx: t.Context(), root: t.TempDir(), dir: t.TempDir()}
	git := func(args ...string) string {
		out, err := s.run(s.root, "git", append([]string{"-c", "user.name=x", "-c", "user.email=x@example.org"}, args...)...)
		require.NoError(t, err)
		return out
	}
	commit := func(files map[string]string) string {
		for name, text := range files {
			require.NoError(t, os.WriteFile(filepath.Join(s.root, name), []byte(text), 0o600))
		}
		git("add", "-A")
		git("commit", "-q", "-m", "x")
		return git("rev-parse", "HEAD")
	}
	git("init", "-q")
	commit(map[string]string{"a.go": "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "a_test.go": "old\n"})
	mend := commit(map[string]string{"a.go": "1\n2\n3\n4\n5\n6\n7\n8\nmended\n", "a_test.go": "new\n"})
	commit(map[string]string{"a.go": "one\n2\n3\n4\n5\n6\n7\n8\nmended\n", "b.go": "b\n"})

	require.NoError(t, ours{fix: mend}.reverse(s, s.root))
	text, err := os.ReadFile(filepath.Join(s.root, "a.go"))
	require.NoError(t, err)
	assert.Equal(t, "one\n2\n3\n4\n5\n6\n7\n8\n9\n", string(text))
	text, err = os.ReadFile(filepath.Join(s.root, "a_test.go"))
	require.NoError(t, err)
	assert.Equal(t, "new\n", string(text), "tests stay")

	git("checkout", "-q", "--", ".")
	git("reset", "-q", "--hard")
	commit(map[string]string{"a.go": "1\n2\n3\n4\n5\n6\n7\n8\nanother\n"})
	require.Error(t, ours{fix: mend}.reverse(s, s.root), "the line is another now")
}

func TestTallyOf(t *testing.T) {
	all := []Judgement{
		{Name: "keyed-waiter-misses-close", Whole: true},
		{Name: "core-lock-ends-the-next-hold", Found: "a", After: 4},
		{Name: "etcd-two-holders-on-3.7", Found: "b", After: 2},
		{Name: "redis-ring-two-holders", Failed: "it does not compile"},
		{Name: "zookeeper-close-hangs"}, // it was stopped
	}
	assert.Equal(t, Tally{Judged: 3, Found: 2, Covered: 2, FoundOfCovered: 2, Median: 2, Longest: 4}, TallyOf(all, Judgement.IsOwn))
	assert.Zero(t, TallyOf(all, func(j Judgement) bool { return !j.IsOwn() }))
}
