package docs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testwait"
)

const module = "github.com/go-locker/locker"

// TestRelease_canBeInstalled makes a release of the tree as it is now, in a repository of its own, and installs it as users do.
// The module proxy is a folder; what the modules need comes from the module cache.
func TestRelease_canBeInstalled(t *testing.T) {
	testwait.OnlyNightly(t, "it compiles the command once more")
	const version = "v0.999.0"
	clone := scratchClone(t, version)
	before := clone.run("git", "rev-parse", "HEAD")
	others := append([]string{"cmd/locker", "kubernetes", "lockervet", "mysql", "otel", "postgres", "s3", "sqlite"}, integrations(t)...)
	for _, dir := range others {
		clone.in(filepath.Join(clone.dir, dir)).run("go", "mod", "tidy", "-diff") // fills the module cache, as any build does
	}
	clone.run("sh", "tools/release.sh", version)
	cached := clone.run("go", "env", "GOMODCACHE") + "/cache/download"

	// The module cache of `go mod download` has the form of a proxy. git reads the clone for GitHub.
	proxy := clone.in(t.TempDir(),
		"GOMODCACHE="+t.TempDir(), "GOPROXY=direct", "GOSUMDB=off",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://"+clone.dir+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+module)
	tags := []string{version}
	proxy.run("go", "mod", "download", module+"@"+version)
	for _, dir := range others {
		tags = append(tags, dir+"/"+version)
		proxy.run("go", "mod", "download", module+"/"+dir+"@"+version)
	}
	slices.Sort(tags)
	proxies := "GOPROXY=file://" + proxy.run("go", "env", "GOMODCACHE") + "/cache/download,file://" + cached

	t.Run("the tags", func(t *testing.T) {
		clone := clone.with(t)
		assert.Equal(t, tags, lines(clone.run("git", "tag", "--sort=refname")), "and no others")
		changed := clone.run("git", "diff", "--stat", before, "main", "--", ".", ":!*/go.mod")
		assert.Empty(t, changed, "but for the version in go.mod files, main is as it was before")
		for _, dir := range others {
			assert.Contains(t, clone.run("git", "show", "main:"+dir+"/go.mod"), "replace "+module+" => ", "main goes on with the root in the tree")
			clone.run("git", "checkout", "-q", dir+"/"+version)
			clone.in(filepath.Join(clone.dir, dir), "GOMODCACHE="+t.TempDir(), proxies, "GOSUMDB=off").run("go", "mod", "tidy", "-diff")
			assert.NotContains(t, clone.run("git", "show", "HEAD:"+dir+"/go.mod"), "replace", dir)
		}
	})
	t.Run("make dist", func(t *testing.T) { // by the workflow of the release, from the command's tag
		clone := clone.with(t)
		clone.run("git", "checkout", "-q", "cmd/locker/"+version)
		binary := filepath.Join(t.TempDir(), "locker")
		clone.in(filepath.Join(clone.dir, "cmd", "locker"), "GOMODCACHE="+t.TempDir(), proxies, "GOSUMDB=off").run("go", "build", "-trimpath", "-buildvcs=true", "-o", binary, ".")
		assert.Equal(t, "locker version "+version, clone.run(binary, "--version"))
	})
	user := proxy.in(t.TempDir(), "GOMODCACHE="+t.TempDir(), proxies, "GOSUMDB=off", "GOBIN="+t.TempDir(), "GIT_CONFIG_COUNT=0")
	t.Run("go get", func(t *testing.T) {
		user := user.with(t)
		user.run("go", "mod", "init", "example.com/user")
		user.run("go", "get", module+"@"+version)
		code := fmt.Sprintf("package main\n\nimport (\n\t_ %q\n\t_ %q\n", module, module+"/memory")
		for _, dir := range append([]string{"kubernetes", "mysql", "otel", "postgres", "s3", "sqlite"}, integrations(t)...) {
			user.run("go", "get", module+"/"+dir+"@"+version)
			code += fmt.Sprintf("\t_ %q\n", module+"/"+dir)
		}
		code += ")\n\nfunc main() {}\n"
		require.NoError(t, os.WriteFile(filepath.Join(user.dir, "main.go"), []byte(code), 0o600))
		user.run("go", "run", "-trimpath", ".")
		assert.Equal(t, module+" "+version, user.run("go", "list", "-m", module))
	})
	t.Run("go install", func(t *testing.T) {
		user := user.with(t)
		user.run("go", "install", "-trimpath", module+"/cmd/locker@"+version)
		assert.Equal(t, "locker version "+version, user.run(filepath.Join(user.run("go", "env", "GOBIN"), "locker"), "--version"))
	})
}

// integrations returns the folders of the adapters for other libraries, each a module.
func integrations(t *testing.T) (dirs []string) {
	t.Helper()
	for dir := range find(t, "go.mod") {
		if strings.HasPrefix(dir, "integrations/") {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	require.NotEmpty(t, dirs)
	return dirs
}

// TestRelease_takesBackWhatItDidIfItFails has the second of its commits fail: there is no root whose hash could be had.
func TestRelease_takesBackWhatItDidIfItFails(t *testing.T) {
	testwait.OnlyNightly(t, "it copies the repository")
	const version = "v0.999.0"
	clone := scratchClone(t, version)
	before := clone.run("git", "rev-parse", "HEAD")
	out, err := clone.in(clone.dir, "GOVCS=*:off").try("sh", "tools/release.sh", version)
	require.Error(t, err, out)
	assert.Contains(t, out, "GOVCS", "why it failed")
	assert.Equal(t, before, clone.run("git", "rev-parse", "HEAD"))
	assert.Empty(t, clone.run("git", "tag"))
	assert.Empty(t, clone.run("git", "status", "--porcelain"))
}

// place is a folder and an environment to run commands in.
type place struct {
	t   *testing.T
	dir string
	env []string
}

func (p place) in(dir string, env ...string) place { return place{p.t, dir, slices.Concat(p.env, env)} }

func (p place) with(t *testing.T) place { return place{t, p.dir, p.env} }

func (p place) try(name string, args ...string) (string, error) {
	p.t.Helper()
	cmd := exec.CommandContext(testwait.Context(p.t, 10*time.Minute), name, args...)
	cmd.WaitDelay = 10 * time.Second
	cmd.Dir, cmd.Env = p.dir, p.env
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (p place) run(name string, args ...string) string {
	p.t.Helper()
	out, err := p.try(name, args...)
	require.NoError(p.t, err, "%s %s:\n%s", name, strings.Join(args, " "), out)
	return out
}

// scratchClone has one commit: what is in this tree now, with a section for version in the changelog.
func scratchClone(t *testing.T, version string) place {
	t.Helper()
	repo, err := filepath.Abs("..")
	require.NoError(t, err)
	env := append(os.Environ(), "GOWORK=off", "GOFLAGS=-modcacherw", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	here, clone := place{t, repo, env}, place{t, t.TempDir(), env}
	for _, file := range lines(here.run("git", "ls-files", "--cached", "--others", "--exclude-standard")) {
		copyFile(t, filepath.Join(repo, file), filepath.Join(clone.dir, file))
	}
	changelog, err := os.OpenFile(filepath.Join(clone.dir, "CHANGELOG.md"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = fmt.Fprintf(changelog, "\n## %s\n", version)
	require.NoError(t, err)
	require.NoError(t, changelog.Close())
	clone.run("git", "init", "-q", "-b", "main")
	clone.run("git", "add", "-A")
	clone.run("git", "commit", "-q", "-m", "the tree as it is")
	return clone
}

// copyFile copies no file that was deleted, and no folder behind a link.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	info, err := os.Stat(from)
	if err != nil || info.IsDir() {
		return
	}
	text, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o700))
	require.NoError(t, os.WriteFile(to, text, info.Mode()))
}

func lines(text string) []string { return strings.Split(text, "\n") }
