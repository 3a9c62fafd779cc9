package docs_test

import (
	"bytes"
	"os"
	"os/exec"
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

// TestCommands runs what pages tell people to type, whatever it is: what is added to a page is run from then on, and fails if it is
// no command that the test knows.
func TestCommands(t *testing.T) {
	testwait.OnlyNightly(t, "commands on pages compile, and run, much of what other tests run")
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh here: ", err)
	}
	var blocks []commands
	for _, page := range []string{"README.md", "CONTRIBUTING.md", "cmd/locker/README.md", "docs/*.md", "docs/backends/*.md", "docs/evidence/*.md"} {
		found, err := filepath.Glob(filepath.Join("..", page))
		require.NoError(t, err)
		require.NotEmpty(t, found, page)
		for _, file := range found {
			blocks = append(blocks, commandsIn(t, file, read(t, file))...)
		}
	}
	s := newShell(t, sh)
	for _, c := range blocks {
		t.Run(strings.TrimPrefix(c.page, "../")+":"+c.lines[0], func(t *testing.T) { s.run(t, c) })
	}
}

// CI runs what the README calls one of its two commands, and what CONTRIBUTING has beside it.
func TestCommands_CIRunsMakeTestAndMakeCheck(t *testing.T) {
	assert.Regexp(t, `(?m)^exec make ci$`, read(t, "../.ci/run"))
	assert.Regexp(t, `(?m)^ci:.*\n\t@\$\(PARTS\) setup test .*\$\(CHECKS\)$`, read(t, "../Makefile"))
}

// commands stand together on a page, to be typed one after the other.
type commands struct {
	page  string
	lines []string
}

var (
	indented = regexp.MustCompile(`(?m)(^ {4}.*\S.*\n)+`)
	fence    = regexp.MustCompile("(?m)^ *```(.*)$")
	// What may stand before a command, and behind it: a line of a crontab, a prompt, a remark.
	schedule = regexp.MustCompile(`^(\d+|\*) (\d+|\*) \* \* \*  `)
	remark   = regexp.MustCompile(`\s{2,}# .*`)
	command  = regexp.MustCompile(`^([A-Z_]+=\S+ )*(go|make|git|cd|locker|redis-cli|etcdctl) `)
	inline   = regexp.MustCompile("`((?:go run|go test|make|locker \\w+) [^`…|]+)`")
	// What else such a block may begin with: URLs, a line of configuration, and what a program prints.
	noCommand = regexp.MustCompile(`^([a-z0-9]+://|user |locker: |promise: |seen: |kept[, ]|… )`)
)

// commandsIn are those of a page: in indented blocks, and in the midst of the text.
func commandsIn(t *testing.T, page, text string) (found []commands) {
	t.Helper()
	for i, f := range fence.FindAllStringSubmatch(text, -1) { // they open and close in turn
		assert.Contains(t, [][]string{{"go", "sql", "json", "python", "yaml"}, {""}}[i%2], f[1], "%s: commands stand in indented blocks", page)
	}
	text = fenced.ReplaceAllString(text, "")
	for _, block := range indented.FindAllString(text, -1) {
		if noCommand.MatchString(strings.TrimSpace(block)) {
			continue
		}
		var lines []string
		answered := strings.HasPrefix(block, "    $ ") // all else is what comes of it
		for line := range strings.Lines(block) {
			line, prompt := strings.CutPrefix(strings.TrimSpace(remark.ReplaceAllString(strings.TrimSuffix(line, "\n"), "")), "$ ")
			if line = schedule.ReplaceAllString(line, ""); !answered || prompt {
				assert.Regexp(t, command, line, "%s: no command that this test knows", page)
				lines = append(lines, line)
			}
		}
		found = append(found, commands{page, lines})
	}
	for _, span := range inline.FindAllStringSubmatch(indented.ReplaceAllString(text, ""), -1) {
		if !strings.HasPrefix(span[1], "locker ") || strings.Contains(span[1], "://") {
			found = append(found, commands{page, span[1:]})
		}
	}
	return found
}

// shell runs commands on servers of the test's own.
type shell struct {
	sh        string
	repo      string
	elsewhere string
	replacer  *strings.Replacer
	env       []string
}

// soaked is what a test's command is to run of the suite, for it takes long.
const soaked = "random_history_is_that_of_one_lock_though_clients_are_cut_off"

// prelude has what needs a network, or takes an hour, do less: make looks whether it has the target.
const prelude = `
git() { test "$1 $2" = "clone https://github.com/go-locker/locker" && ln -s "$REPO" locker; }
go() {
	case "$*" in
	build) command go build -C "$(pwd -P)" -o "$OUT/" ;; # the clone is a link: what was compiled there is known here
	"test ./...") command go list ./... ;; # which these tests are among
	"get github.com/go-locker/locker") ;; # TestRelease_canBeInstalled does
	*) command go "$@" ;;
	esac
}
locker() {
	case "$1" in
	watch) shift; command locker watch --for 1s "$@" ;; # or it watches until Ctrl-C
	*) command locker "$@" ;;
	esac
}
make() { grep -q "^$1:.*##" "$REPO/Makefile"; }
set -x
`

// stub stands for what is run under a lock.
const stub = "#!/bin/sh\necho \"$0 $*, with token ${LOCKER_FENCING_TOKEN:?}\"\n"

func newShell(t *testing.T, sh string) *shell {
	t.Helper()
	repo, err := filepath.Abs("..")
	require.NoError(t, err)
	bin, dir := t.TempDir(), t.TempDir()
	for _, file := range []string{bin + "/backup", bin + "/report", dir + "/deploy.sh"} {
		require.NoError(t, os.WriteFile(file, []byte(stub), 0o700))
	}
	history := read(t, "../internal/history/testdata/good-one-after-the-other.json")
	// The program that judges it writes pages beside it.
	require.NoError(t, os.WriteFile(dir+"/history-7-123.json", []byte(history), 0o600))
	build := exec.Command("go", "build", "-C", repo+"/cmd/locker", "-o", bin+"/")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%v: %s", build, out)

	const briefly = " --rounds 1 --pairs 5 --duration 50ms --goroutines 3"
	const quick = " --run '^(a held lock is not granted|TryLock of)'"
	redis, etcd, zookeeper := testserver.Redis(t).Addr(), testserver.Etcd(t).Addr(), testserver.ZooKeeper(t).Addr()
	nodes := redis + "," + testserver.Redis(t).Addr() + "," + testserver.Redis(t).Addr()
	return &shell{
		sh: sh, repo: repo, elsewhere: dir,
		replacer: strings.NewReplacer(
			"rediss://app:secret@", "redis://", "localhost:6379", redis, "locks:6379", redis, "h1:6379,h2:6379,h3:6379", nodes, "h1:6379", redis,
			"h1:2379,h2:2379,h3:2379", etcd, "h1:2379", etcd, "h1:2181,h2:2181,h3:2181", zookeeper, "postgres://db1/app", testserver.Postgres(t).URL(),
			"sqlite:///var/lib/app/locks.db", "sqlite://"+dir+"/locks.db",
			"locker check --replay history-7-123.json", "locker check --replay history-7-123.json", // as it is
			"--at-least 1m redis://locks:6379", "--at-least 1s 'redis://"+redis+"?ttl=2s'", // the next of that name waits for its end
			"locker release ", "! locker release ", // nobody holds it here
			"locker check", "locker check"+quick, "locker bench", "locker bench"+briefly, "locker compare", "locker compare"+quick+briefly,
			"-run TestConformance ", "-v -run '^TestConformance$/^one_server$/"+soaked+"' ", "-conformance.for=1h", "-conformance.for=30s",
			"-conformance.dir=histories", `-conformance.dir="$OUT"`,
		),
		env: append(os.Environ(), "PATH="+bin+string(filepath.ListSeparator)+os.Getenv("PATH"), "REPO="+repo, "OUT="+t.TempDir()),
	}
}

var standardPort = regexp.MustCompile(`:(6379|26379|2379|2181)\b`)

func (s *shell) run(t *testing.T, c commands) {
	script := s.replacer.Replace(strings.Join(c.lines, "\n"))
	require.NotRegexp(t, standardPort, script, "no server of this test's own stands for that one")
	cmd := exec.CommandContext(testwait.Context(t, 5*time.Minute), s.sh, "-e", "-c", prelude+script)
	cmd.WaitDelay = 10 * time.Second // what it has started may have its pipes
	cmd.Env, cmd.Dir = s.env, s.repo
	if strings.Contains(script, "locker ") && !strings.HasPrefix(script, "go ") {
		cmd.Dir = s.elsewhere
	}
	start := time.Now()
	out, err := cmd.CombinedOutput()
	t.Logf("%.1f s:\n%s", time.Since(start).Seconds(), bytes.TrimSpace(out))
	require.NoError(t, err, "%s:\n%s\n%s", c.page, strings.Join(c.lines, "\n"), out)
	assert.NotContains(t, string(out), "no tests to run", strings.Join(c.lines, "\n"))
	if strings.Contains(script, soaked) {
		assert.Regexp(t, "--- PASS: .*"+soaked, string(out), "where no part of a test has the name, go test says nothing")
	}
}
