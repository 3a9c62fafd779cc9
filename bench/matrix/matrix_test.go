package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/bench/thirdparty"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/backends"
)

// seen is a result of redis.
func seen(outcome conformance.Outcome, g locker.Guarantee, condition string) conformance.Result {
	return conformance.Result{
		Test: "TestConformance/standalone", Scenario: "two at once", Outcome: outcome, Guarantee: g, Condition: condition,
		Seen: "B has it, and so has A", Why: "a key expires by the wall clock",
	}
}

func runOf(results ...conformance.Result) *Run {
	return &Run{Results: map[string][]conformance.Result{"redis": results}}
}

// lacking is a result of a scenario that asks for what the backend lacks.
func lacking(g locker.Guarantee) conformance.Result {
	r := seen(conformance.Skipped, g, "clock")
	r.Seen = "the Harness has no RW"
	return r
}

var redis = backends.All[1]

func TestCell(t *testing.T) {
	const x = locker.Exclusive
	kept, known, lacked := seen(conformance.Kept, x, ""), seen(conformance.Known, x, "clock"), lacking(x)
	for name, c := range map[string]struct {
		results []conformance.Result
		want    string
	}{
		"nothing was tried":                    {nil, "not tried"},
		"all was skipped":                      {[]conformance.Result{seen(conformance.Skipped, x, "")}, "not tried"},
		"kept":                                 {[]conformance.Result{kept, seen(conformance.Kept, x, "clock")}, "held"},
		"kept where it was tried":              {[]conformance.Result{kept, seen(conformance.Skipped, x, "clock")}, "held; not tried when: clock"},
		"broken in a condition":                {[]conformance.Result{kept, known}, "held, but **broken** when: clock"},
		"kept on one topology, broken on more": {[]conformance.Result{kept, seen(conformance.Kept, x, "clock"), known}, "held, but **broken** when: clock"},
		"broken with nothing amiss":            {[]conformance.Result{kept, seen(conformance.Broken, x, "")}, "**broken**"},
		"of another guarantee":                 {[]conformance.Result{seen(conformance.Known, locker.Fencing, "")}, "not tried"},
		"not seen this time":                   {[]conformance.Result{kept, seen(conformance.Unseen, x, "clock")}, "held, by luck"},
		"tried in a condition only":            {[]conformance.Result{known}, "**broken** when: clock"},
		"broken, and another was not tried":    {[]conformance.Result{kept, known, seen(conformance.Skipped, x, "failover")}, "held, but **broken** when: clock; not tried when: failover"},
		"some of a fault needs what is lacked": {[]conformance.Result{kept, lacked, seen(conformance.Skipped, x, "clock")}, "held; not tried when: clock"},
		"all of a fault needs what is lacked":  {[]conformance.Result{kept, lacked}, "held; not tried when: clock"},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, runOf(c.results...).cell(redis, x)) })
	}
}

func TestCell_ofMemoryHasNoServer(t *testing.T) {
	memory := backends.All[0]
	kept, skipped := seen(conformance.Kept, locker.Exclusive, ""), seen(conformance.Skipped, locker.Exclusive, "clock")
	r := &Run{Results: map[string][]conformance.Result{"memory": {kept, skipped}}}
	assert.Equal(t, "held", r.cell(memory, locker.Exclusive))
	assert.Equal(t, "no server", r.cell(memory, locker.Failover))
	assert.Contains(t, r.backendPage(memory), "| clock | no server | 1 |")
}

func TestBackendPage_countsWhatIsLackedWithWhatWasNotTried(t *testing.T) {
	const x = locker.Exclusive
	skipped := seen(conformance.Skipped, x, "clock")
	skipped.Scenario = "another"
	assert.Contains(t, runOf(lacking(x), skipped).backendPage(redis), "| clock | not tried | 2 |")
	assert.Contains(t, runOf(lacking(x)).backendPage(redis), "| clock | lacks | 1 |")
}

// Who reads that a lock survives the loss of a server has to know which loss.
func TestCell_ofLossesThatWereNotTried(t *testing.T) {
	const x = locker.Failover
	crash, failover := seen(conformance.Kept, x, "the server crashes"), seen(conformance.Skipped, x, "failover")
	assert.Equal(t, "held; not tried when: failover", runOf(crash, failover).cell(redis, x))
	assert.Equal(t, "held", runOf(crash, seen(conformance.Kept, x, "failover")).cell(redis, x))
	assert.Equal(t, "not tried", runOf(failover).cell(redis, x))
}

func TestCell_notPromised(t *testing.T) {
	s := seen(conformance.Skipped, locker.Ordered, "")
	s.Seen = `the Harness does not promise "ordered"`
	assert.Equal(t, "not promised", runOf(s).cell(redis, locker.Ordered))
}

func TestContradictions(t *testing.T) {
	declared := func(s conformance.Result, level locker.Level) conformance.Result {
		s.Promised = &locker.Promise{Level: level}
		return s
	}
	known := seen(conformance.Known, locker.Exclusive, "clock")
	for name, c := range map[string]struct {
		result conformance.Result
		want   string
	}{
		"promised, and broken":                         {declared(known, locker.LevelYes), "declares"},
		"promised on a condition, and broken in it":    {declared(known, locker.LevelConditional), ""},
		"not promised":                                 {declared(known, locker.LevelNo), ""},
		"promised on a condition, and broken in peace": {declared(seen(conformance.Known, locker.Exclusive, ""), locker.LevelConditional), "nothing amiss"},
		"broken, and nobody expected it":               {seen(conformance.Broken, "", ""), "nobody expected"},
		"listed as broken, and kept":                   {seen(conformance.Stale, "", ""), "nobody expected"},
	} {
		t.Run(name, func(t *testing.T) {
			var says []string
			for _, err := range runOf(c.result).contradictions() {
				if err != nil {
					says = append(says, err.Error())
				}
			}
			if c.want == "" {
				assert.Empty(t, says)
				return
			}
			require.Len(t, says, 1)
			assert.Contains(t, says[0], c.want)
		})
	}
}

func TestCompare_namesTheTopology(t *testing.T) {
	bad, good := seen(conformance.Known, "", ""), seen(conformance.Kept, "", "")
	good.Test = "TestConformance_sentinel"
	assert.Equal(t, "**broken** (standalone)", runOf(bad, good).compare("redis", "two at once"))
	assert.Equal(t, "**broken**", runOf(bad).compare("redis", "two at once"))
	assert.Equal(t, "held", runOf(good).compare("redis", "two at once"))
	assert.Equal(t, "not tried", runOf().compare("redis", "two at once"))
}

// What a backend lacks, or where the suite cannot try it, is no difference. What one breaks, or
// does not promise, is a row.
func TestComparison_leavesOutWhatOneLacks(t *testing.T) {
	scenario := conformance.Scenarios()[0].Name
	for _, c := range []struct {
		second  conformance.Outcome // of the second backend: the first has kept the promise
		seen    string
		differs bool
	}{
		{conformance.Skipped, "the Harness has no RW", false},
		{conformance.Skipped, "the Harness has no Faults.MoveClock", false},
		{conformance.Kept, "", false},
		{conformance.Known, "B has it", true},
		{conformance.Skipped, "the Harness does not promise an order", true},
	} {
		first, second := seen(conformance.Kept, "", ""), seen(c.second, "", "")
		first.Scenario, second.Scenario, second.Seen = scenario, scenario, c.seen
		r := &Run{Results: map[string][]conformance.Result{"redis": {first}, "etcd": {second}}}
		before, _, _ := strings.Cut(r.comparisonPage(), "\n## Broken on all backends")
		assert.Equal(t, c.differs, strings.Contains(before, "["+scenario+"]"), c.seen)
	}
}

// What was not kept in each trial is held, and each page that shows the verdict shows the count. Elsewhere nothing is different.
func TestPages_countTrials(t *testing.T) {
	sure, doubted := seen(conformance.Kept, locker.Exclusive, ""), seen(conformance.Kept, locker.Exclusive, "")
	doubted.Scenario, doubted.Trials, doubted.Doubts, doubted.Paused = conformance.Scenarios()[0].Name, 5, 2, 1
	sure.Trials = 1
	r := runOf(sure, doubted)
	r.shorten()
	saved := r.Results["redis"]
	assert.Zero(t, saved[0].Trials, "one of one is no news")
	assert.Empty(t, saved[0].Seen)
	assert.Equal(t, 2, saved[1].Doubts)
	assert.NotEmpty(t, saved[1].Seen)

	assert.Equal(t, "held", r.cell(redis, locker.Exclusive))
	assert.Equal(t, "held", r.compare("redis", "two at once"))
	const count = ", in 3 of 5 trials, while the machine was overloaded in another"
	assert.Equal(t, "held", r.compare("redis", doubted.Scenario), "no difference from other backends")
	assert.Equal(t, count+" (standalone)", r.shares("redis", doubted.Scenario))
	assert.Empty(t, r.shares("redis", "two at once"))
	assert.Contains(t, r.comparisonPage(), count)
	page := r.backendPage(redis)
	assert.Contains(t, page, "| 2: "+doubted.Scenario+count+" |", "of what was kept in each trial there is only the number")
	assert.Contains(t, page, "## Held, but not in each trial\n\n- *"+doubted.Scenario+"* (standalone)"+count+". Seen: B has it")
	assert.Contains(t, r.guaranteesPage(), "2 held (1 of them only in some trials)")
	assert.NotContains(t, runOf(sure).guaranteesPage()+runOf(sure).backendPage(redis), "each trial")

	doubted.Test = thirdparty.All()[0].Test
	r.Results[otherLibraries] = []conformance.Result{doubted}
	assert.Contains(t, r.librariesPage(), "| 1 (1 of them only in some trials) |")
	assert.Contains(t, r.libraryPage(libraryFile(thirdparty.All()[0].Name)), "Kept: 1 promises (1 of them only in some trials)")
}

// results writes what a run leaves behind: a file for each backend with one result, and one with a result of each library.
func results(t *testing.T, s conformance.Result) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, b := range backends.All {
		write(t, filepath.Join(dir, b.Package+".json"), s)
	}
	var others []conformance.Result
	for _, l := range thirdparty.All() {
		s.Test = l.Test
		others = append(others, s)
	}
	write(t, filepath.Join(dir, otherLibraries+".json"), others...)
	return dir
}

func write(t *testing.T, file string, all ...conformance.Result) {
	t.Helper()
	var b bytes.Buffer
	for _, s := range all {
		require.NoError(t, json.NewEncoder(&b).Encode(s))
	}
	require.NoError(t, os.WriteFile(file, b.Bytes(), 0o600))
}

func TestRun_writesAndRepeatsItself(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "docs", "backends"), 0o700))
	for _, page := range []string{"docs/backends/README.md", "docs/conformance.md"} {
		text := "before\n" + tableBegins + "\nthe last run\n" + tableEnds + "\nafter\n"
		require.NoError(t, os.WriteFile(filepath.Join(root, page), []byte(text), 0o600))
	}
	s := seen(conformance.Known, locker.Exclusive, "clock")
	s.Seen += " conformance-0123456789abcdef"

	var out strings.Builder
	require.NoError(t, run([]string{"-root", root, "-results", results(t, s)}, &out, &out))
	assert.Contains(t, out.String(), fmt.Sprintf("0 held, %d broken", len(backends.All)))
	first := readAll(t, root)
	for _, part := range []string{"**broken** when: clock", "B has it, and so has A x", "before\n", "\nafter\n"} {
		assert.Truef(t, strings.Contains(first, part), "%q is missing", part) //nolint:testifylint // The pages are too long to be printed.
	}
	assert.False(t, strings.Contains(first, "the last run"), "the old table is left") //nolint:testifylint // As above.

	require.NoError(t, run([]string{"-root", root}, &out, &out))
	assert.Equal(t, first, readAll(t, root), "from what was saved come the same pages")
}

func readAll(t *testing.T, root string) (all string) {
	t.Helper()
	files := []string{"docs/backends/README.md", "docs/conformance.md"}
	for file := range new(Run).pages() {
		files = append(files, filepath.Join("docs", file))
	}
	slices.Sort(files)
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(root, file))
		require.NoError(t, err)
		all += string(text)
	}
	return all
}

func TestRun_failsWithoutALibrary(t *testing.T) {
	s := seen(conformance.Kept, "", "")
	dir := results(t, s)
	s.Test = thirdparty.All()[1].Test
	write(t, filepath.Join(dir, otherLibraries+".json"), s)
	err := run([]string{"-root", t.TempDir(), "-results", dir}, os.Stdout, os.Stderr)
	require.ErrorContains(t, err, "no results of "+thirdparty.All()[0].Name)
}

func TestRun_failsWithoutResults(t *testing.T) {
	err := run([]string{"-root", t.TempDir(), "-results", t.TempDir()}, os.Stdout, os.Stderr)
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.Contains(t, err.Error(), "memory.json")
}

// TestPages_areThoseOfTheRun: nobody has written a cell by hand, and no page is left of an earlier program.
func TestPages_areThoseOfTheRun(t *testing.T) {
	r, err := load("", "../../docs/guarantees.json")
	require.NoError(t, err)
	pages := r.pages()
	for file, want := range pages {
		text, err := os.ReadFile("../../docs/" + file)
		require.NoError(t, err)
		assert.Equal(t, want, string(text), "%s: run make matrix", file)
	}
	html, err := r.htmlPage("../..")
	require.NoError(t, err)
	text, err := os.ReadFile("../../docs/" + htmlFile)
	require.NoError(t, err)
	assert.True(t, html == string(text), "%s: run make matrix", htmlFile) //nolint:testifylint // The page is too long to be printed.
	for file, want := range r.tables() {
		text, err := os.ReadFile("../../" + file)
		require.NoError(t, err)
		assert.Contains(t, string(text), want, "%s: run make matrix", file)
	}
	for _, folder := range []string{"guarantees", "conformance", "other-libraries"} {
		files, err := filepath.Glob("../../docs/" + folder + "/*")
		require.NoError(t, err)
		for _, file := range files {
			assert.Contains(t, pages, folder+"/"+filepath.Base(file), "not made by make matrix")
		}
	}
}

// Each scenario stands on one page, in the order of the suite, and each section has some.
func TestTopics_haveEveryScenarioOnce(t *testing.T) {
	var listed []string
	for _, topic := range topics {
		for _, s := range topic.sections {
			scenarios := s.scenarios()
			assert.NotEmpty(t, scenarios, "%s: no scenario %q", s.title, s.first)
			for _, c := range scenarios {
				listed = append(listed, c.Name)
			}
		}
	}
	var all []string
	for _, s := range conformance.Scenarios() {
		all = append(all, s.Name)
		assert.Contains(t, link("", s.Name), ".md#"+anchor(s.Name))
	}
	assert.ElementsMatch(t, all, listed)
}

// What is alike is said once, with all places; what differs stays apart.
func TestBackendPage_mergesTopologies(t *testing.T) {
	one, two, three := seen(conformance.Known, "", ""), seen(conformance.Known, "", ""), seen(conformance.Known, "", "")
	two.Test, three.Test = "TestConformance/sentinel", "TestConformance/cluster"
	two.Seen, three.Why = "C has it", "something else"
	page := runOf(one, two, three).backendPage(redis)
	assert.Contains(t, page, "- *two at once* (sentinel, standalone). A key expires by the wall clock. Seen on standalone: B has it, and so has A\n")
	assert.Contains(t, page, "- *two at once* (cluster). Something else. Seen: B has it, and so has A\n")

	one, two = seen(conformance.Skipped, "", ""), seen(conformance.Skipped, "", "")
	two.Test = "TestConformance/sentinel"
	page = runOf(one, two).backendPage(redis)
	assert.Contains(t, page, "## Not run: 2\n")
	assert.Contains(t, page, "| B has it, and so has A | sentinel, standalone | 1: two at once |")
}
