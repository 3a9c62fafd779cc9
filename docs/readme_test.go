package docs_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
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
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, block := range goBlock.FindAllStringSubmatch(string(text), -1) {
		if strings.HasPrefix(block[1], "package main\n") {
			programs = append(programs, block[1])
		} else {
			parts = append(parts, block[1])
		}
	}
	return programs, parts
}

// The README's program is pasted into an empty module and run, in memory, and on Redis with the two
// lines changed.
func TestReadme_programRuns(t *testing.T) {
	t.Parallel()
	programs, _ := blocksOf(t, "../README.md")
	require.Len(t, programs, 1)
	line := opensMemory.FindStringSubmatch(programs[0])
	require.NotNil(t, line, "the program says what to change for Redis")
	require.Equal(t, 1, strings.Count(programs[0], line[1]), "one line is to be changed")
	const says = "holds the lock, with fencing token "

	server := testserver.Redis(t)
	url := strings.Replace(line[2], "localhost:6379", server.Addr(), 1)
	onRedis := strings.Replace(programs[0], line[1], url, 1)
	imported := importsMemory.FindStringSubmatch(programs[0])
	require.NotNil(t, imported, "the program imports memory alone")
	onRedis = strings.Replace(onRedis, imported[1], imported[2], 1)
	for _, out := range runInEmptyModule(t, programs[0], onRedis) {
		assert.Regexp(t, "^"+says+"[1-9][0-9]*\n$", out)
	}
	assert.Contains(t, server.Do("INFO", "commandstats"), "cmdstat_eval", "the lock was on this server")
}

// runInEmptyModule runs programs in a module of their own, which has nothing but a replacement of this
// one, and returns what they print. They are built together, as most of what they link is the same.
func runInEmptyModule(t *testing.T, programs ...string) (printed []string) {
	t.Helper()
	repo, err := filepath.Abs("..")
	require.NoError(t, err)
	sums, err := os.ReadFile("../go.sum")
	require.NoError(t, err)
	dir, bin := t.TempDir(), t.TempDir()
	files := map[string]string{
		"go.sum": string(sums), // what go get would write
		"go.mod": fmt.Sprintf("module example.com/empty\n\ngo %s\n\nrequire %s v0.0.0\n\nreplace %s => %s\n",
			goVersion(t), "github.com/go-locker/locker", "github.com/go-locker/locker", repo),
	}
	for i, program := range programs {
		files[fmt.Sprintf("program%d/main.go", i)] = program
	}
	for file, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	ctx := testwait.Context(t, 5*time.Minute)
	build := exec.CommandContext(ctx, "go", "build", "-o", bin+"/", "./...")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off") // all that it needs this module needs, too
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for i, program := range programs {
		out, err := exec.CommandContext(ctx, filepath.Join(bin, fmt.Sprintf("program%d", i))).Output()
		require.NoError(t, err, program)
		printed = append(printed, string(out))
	}
	return printed
}

func goVersion(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../go.mod")
	require.NoError(t, err)
	version := regexp.MustCompile(`(?m)^go (.*)$`).FindStringSubmatch(string(text))
	require.NotNil(t, version)
	return version[1]
}

// What the README and the page on fencing show of Go beside that compiles, with what it leaves out in place.
func TestPages_goCompiles(t *testing.T) {
	repo, err := filepath.Abs("..")
	require.NoError(t, err)
	_, blocks := blocksOf(t, "../README.md")
	require.NotEmpty(t, blocks)
	_, fencing := blocksOf(t, "fencing.md")
	require.NotEmpty(t, fencing)
	blocks = append(blocks, fencing...)
	// Files that the go command sees in a folder that is not there.
	dir, overlay := t.TempDir(), map[string]string{}
	for i, block := range blocks {
		file := filepath.Join(dir, fmt.Sprintf("block%d.go", i))
		require.NoError(t, os.WriteFile(file, []byte(whole(block)), 0o600))
		overlay[filepath.Join(repo, "docs", "readme", filepath.Base(file))] = file
	}
	encoded, err := json.Marshal(map[string]any{"Replace": overlay})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(dir+"/overlay.json", encoded, 0o600))
	cmd := exec.Command("go", "build", "-overlay", dir+"/overlay.json", "./docs/readme")
	cmd.Dir = repo
	out, err := cmd.CombinedOutput()
	assert.NoError(t, err, "%s", out)
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
		body = fmt.Sprintf("func _(ctx context.Context, m *locker.Mutex, db *sql.DB) {\n%s}\n", body)
		for _, p := range []string{"context", "database/sql", "github.com/go-locker/locker"} {
			if !strings.Contains(head, `"`+p+`"`) {
				head += fmt.Sprintf("import %q\n", p)
			}
		}
	}
	return "package readme\n" + head + body
}
