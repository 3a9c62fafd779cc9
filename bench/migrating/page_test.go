package migrating

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Go that the page shows, in blocks and in the columns of calls, is Go of this package, which compiles and runs.
func TestPage_showsWhatIsCompiled(t *testing.T) {
	source, text := sources(t), page(t)
	blocks, calls := blocks(text), calls(text)
	assert.GreaterOrEqual(t, len(blocks), 10)
	assert.GreaterOrEqual(t, len(calls), 50)
	for _, block := range blocks {
		assert.True(t, shows(source, block), "no test has\n%s", block)
	}
	for _, call := range calls {
		if !strings.Contains(source, call) { // which assert.Contains would print
			t.Errorf("no test has %s", call)
		}
	}
}

var block = regexp.MustCompile("(?s)\n```go\n(.*?\n)```\n")

func blocks(page string) (found []string) {
	for _, b := range block.FindAllStringSubmatch(page, -1) {
		found = append(found, b[1])
	}
	return found
}

var span = regexp.MustCompile("`([^`]+)`")

// calls are the code spans in the first two columns of tables that begin with theirs and ours.
func calls(page string) (found []string) {
	within := false
	for line := range strings.Lines(page) {
		cells := strings.Split(line, "|")
		switch {
		case !strings.HasPrefix(line, "|"):
			within = false
		case strings.HasPrefix(line, "| theirs | ours |"):
			within = true
		case within && len(cells) > 3:
			for _, s := range span.FindAllStringSubmatch(cells[1]+cells[2], -1) {
				found = append(found, s[1])
			}
		}
	}
	return found
}

// shows reports whether the lines of each paragraph of block follow one another in source, both without their
// indentation and remarks to linters.
func shows(source, block string) bool {
	for paragraph := range strings.SplitSeq(block, "\n\n") {
		if !strings.Contains(plain(source), plain(paragraph)) {
			return false
		}
	}
	return true
}

func plain(code string) string {
	var b strings.Builder
	b.WriteByte('\n')
	for line := range strings.Lines(code) {
		line, _, _ = strings.Cut(line, " //nolint")
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	return b.String()
}

// sources are the tests but this file, which has what is no example.
func sources(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	var all strings.Builder
	for _, file := range files {
		if file == "page_test.go" {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		all.Write(text)
	}
	return all.String()
}

func TestShows(t *testing.T) {
	const source = "func f() {\n\ta()\n\tdefer b() //nolint:errcheck // so\n\tif c() {\n\t\td()\n\t}\n}\n"
	for code, want := range map[string]bool{
		"a()\ndefer b()\n":     true,
		"if c() {\n\td()\n}\n": true,
		"a()\nif c() {\n":      false,
		"d()\n\na()\n":         true,
		"d()\n\nb()\n":         false,
		"b()\n":                false,
		"e()\n":                false,
	} {
		assert.Equal(t, want, shows(source, code), code)
	}
	assert.Equal(t, []string{"a()\n"}, blocks("text\n```go\na()\n```\n```\nb()\n```\n"))
	assert.Equal(t, []string{"a()", "b()", "c"}, calls("| theirs | ours | why |\n|---|---|---|\n| `a()` | `b()`, `c` | `d` |\n\n| x | y |\n| `e` | `f` |\n"))
}
