package docs_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
)

var (
	goBlock  = regexp.MustCompile("(?ms)^```go\n(.*?\n)```$")
	imports  = regexp.MustCompile(`(?s)^import \(.*?\n\)\n`)
	declared = regexp.MustCompile(`(?m)^(\w+(?:, \w+)*) := `)
	omitted  = regexp.MustCompile(`(?:return )?…([^\n"]*)`)
	// The two lines of the README's program that are changed for Redis.
	opensMemory   = regexp.MustCompile(`Open\(ctx, ("mem://")\) // or ("redis://localhost:6379")\n`)
	importsMemory = regexp.MustCompile(`_ ("github\.com/go-locker/locker/memory") // or ("github\.com/go-locker/locker/redis")\n`)
)

// blocksOf returns the Go in a page: whole programs, and parts.
func blocksOf(t *testing.T, page string) (programs, parts []string) {
	t.Helper()
	for _, block := range goBlock.FindAllStringSubmatch(read(t, page), -1) {
		if strings.HasPrefix(block[1], "package main\n") {
			programs = append(programs, block[1])
		} else {
			parts = append(parts, block[1])
		}
	}
	return programs, parts
}

// readmePrograms returns the README's program, and the same with its two lines changed for Redis.
func readmePrograms(t *testing.T, redis string) (inMemory, onRedis string) {
	t.Helper()
	programs, _ := blocksOf(t, "../README.md")
	require.Len(t, programs, 1)
	opened, imported := opensMemory.FindStringSubmatch(programs[0]), importsMemory.FindStringSubmatch(programs[0])
	require.NotNil(t, opened, "the program says what to change for Redis")
	require.NotNil(t, imported, "the program imports memory alone")
	require.Equal(t, 1, strings.Count(programs[0], opened[1]), "one line is to be changed")
	url := strings.Replace(opened[2], "localhost:6379", redis, 1)
	return programs[0], strings.NewReplacer(opened[1], url, imported[1], imported[2]).Replace(programs[0])
}

// saysItHolds is what the program prints.
const saysItHolds = "^holds the lock, with fencing token [1-9][0-9]*$"

// In an empty folder, after its go get, the program is run by TestRelease_canBeInstalled.
func TestReadme_programRuns(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	inMemory, onRedis := readmePrograms(t, server.Addr())
	for _, program := range []string{inMemory, onRedis} {
		assert.Regexp(t, saysItHolds, inTree(t, "run", program))
	}
	assert.Contains(t, server.Do("INFO", "commandstats"), "cmdstat_eval", "the lock was on this server")
}

// What the README and the page on fencing show of Go beside that compiles, with what it leaves out in place.
func TestPages_goCompiles(t *testing.T) {
	t.Parallel()
	var files []string
	for _, page := range []string{"../README.md", "fencing.md"} {
		_, blocks := blocksOf(t, page)
		require.NotEmpty(t, blocks, page)
		for _, block := range blocks {
			files = append(files, whole(block))
		}
	}
	inTree(t, "build", files...)
}

// inTree runs or builds files as a package of the repository, without writing them there.
func inTree(t *testing.T, command string, files ...string) string {
	t.Helper()
	repo, err := filepath.Abs("..")
	require.NoError(t, err)
	dir, overlay := t.TempDir(), map[string]string{}
	for i, text := range files {
		file := filepath.Join(dir, fmt.Sprintf("file%d.go", i))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		overlay[filepath.Join(repo, "docs", "readme", filepath.Base(file))] = file
	}
	encoded, err := json.Marshal(map[string]any{"Replace": overlay})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(dir+"/overlay.json", encoded, 0o600))
	return place{t, repo, os.Environ()}.run("go", command, "-overlay", dir+"/overlay.json", "./docs/readme")
}

// Go in these pages, in blocks and in the columns of calls, comes from programs and tests, which
// compile and run.
func TestPages_showGoThatRuns(t *testing.T) {
	shown := 0
	for dir, pages := range map[string][]string{"jobs": {"integrations.md"}, "migrating": {"migrating.md", "changeover.md"}} {
		files, err := filepath.Glob("../bench/" + dir + "/*.go")
		require.NoError(t, err)
		source := ""
		for _, file := range files {
			source += read(t, file)
		}
		for _, page := range pages {
			_, blocks := blocksOf(t, page)
			assert.NotEmpty(t, blocks, page)
			for _, block := range blocks {
				for paragraph := range strings.SplitSeq(block, "\n\n") {
					// assert.Contains would print the whole source.
					if shown++; !strings.Contains(plain(source), plain(paragraph)) {
						t.Errorf("%s: no test has\n%s", page, paragraph)
					}
				}
			}
			for head, cells := range rows(read(t, page)) {
				if head[0] != "theirs" || head[1] != "ours" {
					continue
				}
				for _, call := range codeSpan.FindAllString(cells[0]+cells[1], -1) {
					if shown++; !strings.Contains(source, strings.Trim(call, "`")) {
						t.Errorf("%s: no test has %s", page, call)
					}
				}
			}
		}
	}
	assert.Greater(t, shown, 70)
}

// plain is code without its indentation and remarks to linters.
func plain(code string) string {
	var b strings.Builder
	b.WriteByte('\n')
	for line := range strings.Lines(code) {
		line, _, _ = strings.Cut(line, " //nolint")
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	return b.String()
}

// whole makes a file of a block: its package, what it does not say that it imports, and a function around what has none.
func whole(block string) string {
	block = omitted.ReplaceAllString(block, `panic("left out")$1`)
	head := imports.FindString(block)
	body := strings.TrimPrefix(block, head)
	for _, p := range []string{
		"context", "errors", "fmt", "testing", "time", "github.com/go-locker/locker", "github.com/go-locker/locker/conformance",
		"github.com/go-locker/locker/fence", "github.com/go-locker/locker/fence/sqlfence",
	} {
		if regexp.MustCompile(`\b`+path.Base(p)+`\.`).MatchString(body) && !strings.Contains(head, `"`+p+`"`) {
			head += fmt.Sprintf("import %q\n", p)
		}
	}
	if !strings.HasPrefix(body, "func ") {
		for _, names := range declared.FindAllStringSubmatch(body, -1) {
			for name := range strings.SplitSeq(names[1], ", ") {
				body += "_ = " + name + "\n"
			}
		}
		body = fmt.Sprintf("func _(ctx context.Context, client *locker.Client, m *locker.Mutex, db *sql.DB, migrations fs.FS) {\n%s}\n", body)
		for _, p := range []string{"context", "database/sql", "io/fs", "github.com/go-locker/locker"} {
			if !strings.Contains(head, `"`+p+`"`) {
				head += fmt.Sprintf("import %q\n", p)
			}
		}
	}
	return "package readme\n" + head + body
}
