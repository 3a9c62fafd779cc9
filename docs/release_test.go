package docs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/backends"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

const (
	module  = "github.com/go-locker/locker"
	version = "v0.999.0" // of a release of the tree as it is now
)

// given is what the pages of the integrations leave to the program.
var given = map[string]string{
	"certmagic": "var cache *certmagic.Cache",
	"clientgo":  "var callbacks leaderelection.LeaderCallbacks",
	"gocron":    "var (\n\tonError func(error)\n\treport func(context.Context) error\n)",
}

// TestRelease_canBeInstalled makes a release in a repository of its own, and installs it as the
// pages say.
func TestRelease_canBeInstalled(t *testing.T) {
	testwait.OnlyNightly(t, "it compiles the command once more")
	clone := scratchClone(t)
	before := clone.run("git", "rev-parse", "HEAD")
	pages := map[string]string{"otel": "observability.md"} // of packages
	others := []string{"otel", "cmd/locker", "lockervet"}  // modules
	for _, b := range backends.All {
		if b.Module != "" {
			pages[b.Folder()] = "backends/" + b.Package + ".md"
			others = append(others, b.Module)
		}
	}
	for _, file := range find(t, "go.mod") {
		dir := strings.TrimPrefix(path.Dir(file), "../")
		if strings.HasPrefix(dir, "integrations/") {
			pages[dir] = "../" + dir + "/README.md"
			others = append(others, dir)
		}
	}
	slices.Sort(others)
	others = slices.Compact(others)
	for _, dir := range others { // fills the module cache, as any build does
		clone.in(filepath.Join(clone.dir, dir)).run("go", "mod", "tidy", "-diff")
	}
	clone.run("sh", "tools/release.sh", version)
	proxies := clone.proxy(append(others, "")...)

	t.Run("the tags", func(t *testing.T) {
		clone := clone.with(t)
		tags := []string{version}
		for _, dir := range others {
			tags = append(tags, dir+"/"+version)
		}
		assert.ElementsMatch(t, tags, lines(clone.run("git", "tag")), "and no others")
		changed := clone.run("git", "diff", "--stat", before, "main", "--", ".", ":!*/go.mod")
		assert.Empty(t, changed, "but for the version in go.mod files, main is as it was before")
		for _, dir := range others {
			assert.Contains(t, clone.run("git", "show", "main:"+dir+"/go.mod"),
				"replace "+module+" => ", "main goes on with the root in the tree")
			clone.run("git", "checkout", "-q", dir+"/"+version)
			clone.in(filepath.Join(clone.dir, dir), "GOMODCACHE="+t.TempDir(), proxies).run("go", "mod", "tidy", "-diff")
			assert.NotContains(t, clone.run("git", "show", "HEAD:"+dir+"/go.mod"), "replace", dir)
		}
	})
	t.Run("make dist", func(t *testing.T) { // by the workflow of the release, from the command's tag
		clone := clone.with(t)
		clone.run("git", "checkout", "-q", "cmd/locker/"+version)
		binary := filepath.Join(t.TempDir(), "locker")
		clone.in(filepath.Join(clone.dir, "cmd", "locker"), "GOMODCACHE="+t.TempDir(), proxies).
			run("go", "build", "-trimpath", "-buildvcs=true", "-o", binary, ".")
		assert.Equal(t, "locker version "+version, clone.run(binary, "--version"))
	})
	for dir, page := range pages {
		t.Run("go get "+dir, func(t *testing.T) {
			user := clone.with(t).user(proxies)
			get := goGet(t, page)
			require.NotEmpty(t, get, "%s says how to get it", page)
			for _, line := range get {
				user.run("sh", "-c", line)
			}
			user.write("import.go", fmt.Sprintf("package user\n\nimport _ %q\n", module+"/"+dir))
			if strings.HasPrefix(dir, "integrations/") {
				_, blocks := blocksOf(t, page)
				require.Len(t, blocks, 1, page)
				code := whole(blocks[0]) + given[path.Base(dir)]
				user.write("readme.go", strings.Replace(code, "package readme", "package user", 1))
			}
			user.run("go", "build", "-trimpath", "./...")
			assert.Equal(t, module+" "+version, user.run("go", "list", "-m", module))
			if example, err := os.ReadFile("../" + dir + "/example_test.go"); err == nil && dir != "otel" {
				user.write("example/example_test.go", string(example)) // as it is pasted from the package's page
				user.run("go", "get", "-t", "./example")               // its database drivers, and the like
				user.run("go", "test", "-trimpath", "-vet=off", "./example")
			}
		})
	}
	t.Run("the README's program", func(t *testing.T) {
		get := goGet(t, "../README.md")
		require.Len(t, get, 2, "before the program, and for Redis")
		inMemory, onRedis := readmePrograms(t, testserver.Redis(t).Addr())
		user := clone.with(t).user(proxies)
		for i, program := range []string{inMemory, onRedis} {
			user.run("sh", "-c", get[i])
			user.write("main.go", program)
			assert.Regexp(t, saysItHolds, user.run("go", "run", "-trimpath", "."))
		}
	})
	t.Run("go install", func(t *testing.T) {
		bin := t.TempDir()
		user := clone.with(t).user(proxies)
		user.in(user.dir, "GOBIN="+bin).run("go", "install", "-trimpath", module+"/cmd/locker@"+version)
		assert.Equal(t, "locker version "+version, user.run(filepath.Join(bin, "locker"), "--version"))
	})
}

// What a program gets that imports one package is what the page says: the modules that it compiles, and, more or less, the
// lines of go.sum.
func TestCompatibility_saysWhatComesIn(t *testing.T) {
	t.Parallel()
	page := read(t, "compatibility.md")
	repo, err := filepath.Abs("..")
	require.NoError(t, err)
	env := append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off", "GOSUMDB=off")
	modules := map[string]string{"all": ""} // by package
	for _, b := range backends.All {
		modules[b.Folder()] = b.Module
	}
	for dir, own := range modules {
		t.Run(dir, func(t *testing.T) {
			if own != "" {
				testwait.OnlyNightly(t, "only make nightly has the modules that "+own+" requires")
			}
			user := place{t, t.TempDir(), env}
			user.write("main.go", fmt.Sprintf("package main\n\nimport _ %q\n\nfunc main() {}\n", module+"/"+dir))
			user.run("go", "mod", "init", "example.com/user")
			for _, m := range slices.Compact([]string{"", own}) {
				user.run("go", "mod", "edit", "-require="+path.Join(module, m)+"@"+version, "-replace="+path.Join(module, m)+"="+filepath.Join(repo, m))
			}
			user.run("go", "mod", "tidy")
			deps := lines(user.run("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}", "."))
			slices.Sort(deps)
			deps = slices.DeleteFunc(slices.Compact(deps), func(dep string) bool { return strings.HasPrefix(dep, module) })
			sums := strings.Count(read(t, filepath.Join(user.dir, "go.sum")), "\n")
			row := regexp.MustCompile("(?m)^\\| `" + dir + "` \\| (\\d+)\\D.*? (\\d+) \\|$").FindStringSubmatch(page)
			require.NotNil(t, row, "a row: %d modules, %d lines", len(deps), sums)
			assert.Equal(t, row[1], strconv.Itoa(len(deps)), strings.Join(deps, " "))
			said, err := strconv.Atoi(row[2])
			require.NoError(t, err)
			assert.InEpsilon(t, said, sums, 0.2)
		})
	}
}

// goGet returns the `go get` lines of a page, in their order.
func goGet(t *testing.T, page string) []string {
	t.Helper()
	return regexp.MustCompile("\\bgo get [^`\\n]+").FindAllString(read(t, page), -1)
}

// proxy returns a GOPROXY that serves version of the modules in these folders of the clone, which
// git reads for GitHub. All other modules come from the module cache of this machine.
func (p place) proxy(dirs ...string) string {
	p.t.Helper()
	cached := p.run("go", "env", "GOMODCACHE")
	fetch := p.in(p.t.TempDir(), "GOMODCACHE="+p.t.TempDir(), "GOPROXY=direct",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://"+p.dir+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+module)
	for _, dir := range dirs {
		fetch.run("go", "mod", "download", path.Join(module, dir)+"@"+version)
	}
	// The module cache of `go mod download` has the form of a proxy.
	return "GOPROXY=file://" + fetch.run("go", "env", "GOMODCACHE") + "/cache/download,file://" + cached + "/cache/download"
}

// user is an empty module in an empty folder, with an empty module cache.
func (p place) user(proxies string) place {
	p.t.Helper()
	u := p.in(p.t.TempDir(), "GOMODCACHE="+p.t.TempDir(), proxies)
	u.run("go", "mod", "init", "example.com/user")
	return u
}

func (p place) write(file, text string) {
	p.t.Helper()
	file = filepath.Join(p.dir, file)
	require.NoError(p.t, os.MkdirAll(filepath.Dir(file), 0o700))
	require.NoError(p.t, os.WriteFile(file, []byte(text), 0o600))
}

// TestRelease_takesBackWhatItDidIfItFails has the second of its commits fail: there is no root whose hash could be had.
func TestRelease_takesBackWhatItDidIfItFails(t *testing.T) {
	testwait.OnlyNightly(t, "it copies the repository")
	clone := scratchClone(t)
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
func scratchClone(t *testing.T) place {
	t.Helper()
	repo, err := filepath.Abs("..")
	require.NoError(t, err)
	env := append(os.Environ(), "GOWORK=off", "GOFLAGS=-modcacherw", "GOSUMDB=off", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	clone := place{t, t.TempDir(), env}
	clone.run("git", "init", "-q", "-b", "main")
	clone.in(repo).run("git", "--git-dir="+filepath.Join(clone.dir, ".git"), "--work-tree=.", "add", "-A")
	clone.run("git", "checkout", "-q", "--", ".")
	changelog, err := os.OpenFile(filepath.Join(clone.dir, "CHANGELOG.md"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = fmt.Fprintf(changelog, "\n## %s\n", version)
	require.NoError(t, err)
	require.NoError(t, changelog.Close())
	clone.run("git", "add", "-A")
	clone.run("git", "commit", "-q", "-m", "the tree as it is")
	return clone
}

func lines(text string) []string { return strings.Split(text, "\n") }
