// Package docs holds the project's pages, and the tests that keep what they refer to from disappearing.
package docs_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every page of the repository: what it links to is there, and so is every test that it names. A link into a Go file,
// file.go#TestName, is one to the declaration of that name.
func TestPages_linkToWhatIsThere(t *testing.T) {
	repo := open(t, os.DirFS(".."))
	assert.Greater(t, len(repo.pages), 10)
	assert.Greater(t, len(repo.tests), 500)
	for _, page := range repo.pages {
		for _, problem := range repo.problems(t, page) {
			t.Errorf("%s: %s", page, problem)
		}
	}
}

// The index has every page of this folder and of the backends, and that of the evidence has the rest.
func TestIndex_hasEveryPage(t *testing.T) {
	for dir, patterns := range map[string][]string{".": {"*.md", "backends/*.md"}, "evidence": {"*.md"}} {
		index, err := os.ReadFile(path.Join(dir, "README.md"))
		require.NoError(t, err)
		var pages []string
		for _, pattern := range patterns {
			found, err := fs.Glob(os.DirFS(dir), pattern)
			require.NoError(t, err)
			pages = append(pages, found...)
		}
		assert.Greater(t, len(pages), 5)
		for _, page := range pages {
			if page != "README.md" && !strings.Contains(string(index), "]("+page+")") {
				t.Errorf("%s/README.md: no link to %s", dir, page)
			}
		}
	}
}

// Each alert leads to its heading in the runbook.
func TestRunbook_hasEveryAlert(t *testing.T) {
	rules, err := os.ReadFile("../examples/observability/rules.yml")
	require.NoError(t, err)
	page, err := os.ReadFile("runbook.md")
	require.NoError(t, err)
	links := regexp.MustCompile(`alert: (\w+)\n(?:[^-\n].*\n)*? +runbook_url: '\S+/docs/runbook\.md#(\S+)'`).FindAllStringSubmatch(string(rules), -1)
	assert.Len(t, links, strings.Count(string(rules), "alert: "))
	for _, l := range links {
		assert.True(t, strings.HasPrefix(l[2], strings.ToLower(l[1])+"-"), l[2])
		assert.Equal(t, 1, anchors(string(page))[l[2]], l[2])
	}
}

// These pages promise that what stands in their tables was shown by a test, or is marked as not.
func TestClaims_saysOfEachWhatShowsIt(t *testing.T) {
	for page, tables := range map[string]int{
		"safety.md": 2, "fencing.md": 3, "runbook.md": 1, "evidence/redlock-tokens.md": 2, "migrating.md": 6,
		"backends/redis.md": 1, "backends/redlock.md": 1, "backends/etcd.md": 1, "backends/zookeeper.md": 1, "backends/postgres.md": 1, "backends/kubernetes.md": 1, "backends/mysql.md": 1, "backends/s3.md": 1, "backends/sqlite.md": 1,
	} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		assert.GreaterOrEqual(t, strings.Count(string(text), " "+shownBy+" |\n"), tables, "%s: tables with a column %q", page, shownBy)
		for _, problem := range unshown(string(text)) {
			t.Errorf("%s: %s", page, problem)
		}
	}
}

const (
	shownBy   = "shown by"
	notTested = "(not tested here)"
)

// shows is a link to what a machine has seen: a test, a scenario, or what the benchmarks or the matrix wrote.
var shows = regexp.MustCompile(`\]\([^)]*(_test\.go#Test|matrix\.html#|README\.md#what-the-suite-saw|bench\.md)[^)]*\)`)

// unshown are the rows of tables whose last column is shownBy, and which have neither such a link there nor the mark.
func unshown(page string) (problems []string) {
	within := false
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		last := strings.TrimSpace(cells[len(cells)-1])
		switch {
		case !strings.HasPrefix(line, "|"):
			within = false
		case last == shownBy:
			within = true
		case within && strings.Trim(last, "-: ") != "" && !shows.MatchString(last) && !strings.Contains(last, notTested):
			problems = append(problems, "nothing shows, and no mark says so: "+strings.TrimSpace(line))
		}
	}
	return problems
}

// repository is what pages may refer to.
type repository struct {
	files fs.FS
	pages []string
	tests map[string]bool // the names of all, of whatever package
}

var testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

func open(t *testing.T, files fs.FS) *repository {
	t.Helper()
	r := &repository{files: files, tests: map[string]bool{}}
	require.NoError(t, fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return fs.SkipDir
		case strings.HasSuffix(name, ".md"):
			r.pages = append(r.pages, name)
		case strings.HasSuffix(name, "_test.go"):
			source, err := fs.ReadFile(files, name)
			if err != nil {
				return err
			}
			for _, found := range testFunction.FindAllStringSubmatch(string(source), -1) {
				r.tests[found[1]] = true
			}
		}
		return nil
	}))
	return r
}

var (
	fenced   = regexp.MustCompile("(?ms)^ *```.*?\n *```")
	codeSpan = regexp.MustCompile("`[^`\n]*`")
	link     = regexp.MustCompile(`\]\(([^)\s]+)[^)]*\)`)
	testName = regexp.MustCompile(`\bTest[A-Z]\w*`)
	entity   = regexp.MustCompile(`&(#\d+|quot|amp|lt|gt);`)
)

// problems are what is wrong with a page, in a sentence each.
func (r *repository) problems(t *testing.T, page string) (problems []string) {
	t.Helper()
	source, err := fs.ReadFile(r.files, page)
	require.NoError(t, err)
	text := fenced.ReplaceAllString(string(source), "")
	for _, found := range link.FindAllStringSubmatch(codeSpan.ReplaceAllString(text, ""), -1) {
		if err := r.follow(page, found[1]); err != nil {
			problems = append(problems, fmt.Sprintf("the link to %s: %v", found[1], err))
		}
	}
	for _, name := range testName.FindAllString(text, -1) {
		if !r.tests[name] {
			problems = append(problems, "names a test that is not there: "+name)
		}
	}
	if found := entity.FindString(string(source)); found != "" {
		problems = append(problems, "has an HTML entity: "+found)
	}
	places := anchors(string(source))
	for _, place := range slices.Sorted(maps.Keys(places)) {
		if places[place] > 1 {
			problems = append(problems, "has two places called #"+place)
		}
	}
	return problems
}

var external = regexp.MustCompile(`^[a-z]+:`)

func (r *repository) follow(page, target string) error {
	if external.MatchString(target) {
		return nil
	}
	file, fragment, _ := strings.Cut(target, "#")
	name := page
	if file != "" {
		name = path.Join(path.Dir(page), file)
	}
	if _, err := fs.Stat(r.files, name); err != nil || fragment == "" {
		return err
	}
	source, err := fs.ReadFile(r.files, name)
	switch {
	case err != nil:
		return err
	case strings.HasSuffix(name, ".md"):
		if anchors(string(source))[fragment] == 0 {
			return errors.New("the page has no such place")
		}
		return nil
	case strings.HasSuffix(name, ".html"):
		if !strings.Contains(string(source), `id="`+fragment+`"`) {
			return errors.New("the page has no such place")
		}
		return nil
	case strings.HasSuffix(name, ".go"):
		return declares(source, fragment)
	default:
		return errors.New("places are known in pages and in Go files alone")
	}
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

// declares is nil if a Go file has a function or a type of that name.
func declares(source []byte, name string) error {
	parsed, err := parser.ParseFile(token.NewFileSet(), "", source, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, d := range parsed.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.Name == name {
				return nil
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if s, ok := s.(*ast.TypeSpec); ok && s.Name.Name == name {
					return nil
				}
			}
		}
	}
	return errors.New("the file declares no such thing")
}
