// Package docs holds the project's pages, and the tests that keep what they refer to from disappearing.
package docs_test

import (
	"errors"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// read returns the text of a file, whose path is from this folder.
func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

// find returns the files of the repository whose names match a pattern. It leaves out testdata and
// hidden files.
func find(t *testing.T, pattern string) (found []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir("..", func(file string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && file != ".." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if ok, _ := path.Match(pattern, d.Name()); ok {
			found = append(found, filepath.ToSlash(file))
		}
		return err
	}))
	require.NotEmpty(t, found, pattern)
	return found
}

var (
	testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	fenced       = regexp.MustCompile("(?ms)^ *```.*?\n *```")
	codeSpan     = regexp.MustCompile("`[^`\n]*`")
	link         = regexp.MustCompile(`\]\(([^)\s]+)[^)]*\)`)
	testName     = regexp.MustCompile(`\bTest[A-Z]\w*`)
	entity       = regexp.MustCompile(`&(#\d+|quot|amp|lt|gt);`)
)

// Every page of the repository: what it links to is there, and so is every test that it names. A link into a Go file,
// file.go#TestName, is one to the declaration of that name.
func TestPages_linkToWhatIsThere(t *testing.T) {
	tests := map[string]bool{}
	for _, file := range find(t, "*_test.go") {
		for _, found := range testFunction.FindAllStringSubmatch(read(t, file), -1) {
			tests[found[1]] = true
		}
	}
	for _, page := range find(t, "*.md") {
		source := read(t, page)
		text := fenced.ReplaceAllString(source, "")
		for _, found := range link.FindAllStringSubmatch(codeSpan.ReplaceAllString(text, ""), -1) {
			if err := follow(page, found[1]); err != nil {
				t.Errorf("%s: the link to %s: %v", page, found[1], err)
			}
		}
		for _, name := range testName.FindAllString(text, -1) {
			assert.True(t, tests[name], "%s names a test that is not there: %s", page, name)
		}
		assert.Empty(t, entity.FindString(source), "%s has an HTML entity", page)
		for place, times := range anchors(source) {
			assert.Equal(t, 1, times, "%s: places called #%s", page, place)
		}
	}
}

// The index has every page of this folder and of the backends, and that of the evidence has the rest.
func TestIndex_hasEveryPage(t *testing.T) {
	for dir, patterns := range map[string][]string{".": {"*.md", "backends/*.md"}, "evidence": {"*.md"}} {
		index := read(t, path.Join(dir, "README.md"))
		var pages []string
		for _, pattern := range patterns {
			found, err := fs.Glob(os.DirFS(dir), pattern)
			require.NoError(t, err)
			pages = append(pages, found...)
		}
		assert.Greater(t, len(pages), 5)
		for _, page := range pages {
			if page != "README.md" && !strings.Contains(index, "]("+page+")") {
				t.Errorf("%s/README.md: no link to %s", dir, page)
			}
		}
	}
}

// Each alert leads to its heading in the runbook.
func TestRunbook_hasEveryAlert(t *testing.T) {
	rules, page := read(t, "../examples/observability/rules.yml"), read(t, "runbook.md")
	links := regexp.MustCompile(`alert: (\w+)\n(?:[^-\n].*\n)*? +runbook_url: '\S+/docs/runbook\.md#(\S+)'`).FindAllStringSubmatch(rules, -1)
	assert.Len(t, links, strings.Count(rules, "alert: "))
	for _, l := range links {
		assert.True(t, strings.HasPrefix(l[2], strings.ToLower(l[1])+"-"), l[2])
		assert.Equal(t, 1, anchors(page)[l[2]], l[2])
	}
}

// These pages promise that what stands in their tables was shown by a test, or is marked as not.
func TestClaims_saysOfEachWhatShowsIt(t *testing.T) {
	for page, tables := range map[string]int{
		"safety.md": 2, "fencing.md": 3, "evidence/redlock-tokens.md": 2, "migrating.md": 6,
		"backends/redis.md": 1, "backends/redlock.md": 1, "backends/etcd.md": 1, "backends/zookeeper.md": 1, "backends/postgres.md": 1, "backends/kubernetes.md": 1, "backends/mysql.md": 1, "backends/s3.md": 1, "backends/sqlite.md": 1,
	} {
		text := read(t, page)
		assert.GreaterOrEqual(t, strings.Count(text, " "+shownBy+" |\n"), tables, "%s: tables with a column %q", page, shownBy)
		for head, cells := range rows(text) {
			if last := cells[len(cells)-1]; head[len(head)-1] == shownBy && !shows.MatchString(last) && !strings.Contains(last, notTested) {
				t.Errorf("%s: nothing shows, and no mark says so: %q", page, cells)
			}
		}
	}
}

const (
	shownBy   = "shown by"
	notTested = "(not tested here)"
)

// shows is a link to what a machine has seen: a test, a scenario, or what the benchmarks or the matrix wrote.
var shows = regexp.MustCompile(`\]\([^)]*(_test\.go#Test|matrix\.html#|README\.md#what-the-suite-saw|bench\.md)[^)]*\)`)

// rows yields the head and the cells of each row of a page's tables.
func rows(page string) iter.Seq2[[]string, []string] {
	return func(yield func(head, cells []string) bool) {
		var head []string
		for line := range strings.Lines(page) {
			if !strings.HasPrefix(line, "|") {
				head = nil
				continue
			}
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			switch {
			case head == nil:
				head = cells
			case strings.HasPrefix(cells[0], "--"): // below the head
			case !yield(head, cells):
				return
			}
		}
	}
}

var external = regexp.MustCompile(`^[a-z]+:`)

// follow is nil if the target of a page's link is there.
func follow(page, target string) error {
	if external.MatchString(target) {
		return nil
	}
	file, fragment, _ := strings.Cut(target, "#")
	name := page
	if file != "" {
		name = path.Join(path.Dir(page), file)
	}
	if _, err := os.Stat(name); err != nil || fragment == "" {
		return err
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	found := false
	switch path.Ext(name) {
	case ".md":
		found = anchors(string(text))[fragment] > 0
	case ".html":
		found = strings.Contains(string(text), `id="`+fragment+`"`)
	case ".go":
		found = regexp.MustCompile(`(?m)^(func|type|\t*type) ` + fragment + `\b`).Match(text)
	}
	if !found {
		return errors.New("the file has no such place")
	}
	return nil
}

var anchor = regexp.MustCompile(`<a id="([^"]*)">`)

// anchors are the places in a page that a link can lead to, and how often each is there: its headings, as GitHub
// derives a name from them, and what has an id.
func anchors(page string) map[string]int {
	places := map[string]int{}
	for line := range strings.Lines(fenced.ReplaceAllString(page, "")) {
		if heading, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			places[slug(heading)]++
		}
		for _, found := range anchor.FindAllStringSubmatch(line, -1) {
			places[found[1]]++
		}
	}
	return places
}

func slug(heading string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c == ' ':
			return '-'
		case c == '-', c == '_', unicode.IsLetter(c), unicode.IsDigit(c):
			return unicode.ToLower(c)
		default:
			return -1
		}
	}, strings.TrimSpace(heading))
}
