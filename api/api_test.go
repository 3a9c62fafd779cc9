// Package api holds the exported API of each package, as text, and the test that compares it with the code.
//
// Each file is a package, each line something that programs may depend on. What is new is accepted by `make api`, and shows as a line
// that is added. A line that goes, or changes, breaks programs: the test fails until `make api BREAKING=yes` says that it is
// meant. docs/compatibility.md says when it may be.
package api_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testwait"
)

var (
	accept   = flag.Bool("accept", false, "write what is new into the files of this folder")
	breaking = flag.Bool("breaking", false, "with -accept: take out what is gone, too")
)

const module = "github.com/go-locker/locker"

// The modules that other programs import. cmd/locker, bench and the examples have nothing for them.
var modules = []string{"..", "../kubernetes", "../lockervet", "../mysql", "../otel", "../postgres", "../s3", "../sqlite", "../integrations/certmagic", "../integrations/clientgo", "../integrations/gocron", "../integrations/golangmigrate", "../integrations/goose", "../integrations/tusd"}

func TestAPI_isWhatWasAccepted(t *testing.T) {
	if !*accept {
		testwait.OnlyNightly(t, "it compiles another module, and looks at text")
	}
	accepted := files(t)
	for _, dir := range modules {
		for _, p := range packages(t, dir) {
			name := fileOf(p.Path())
			delete(accepted, name)
			t.Run(name, func(t *testing.T) { check(t, name, listing(p)) })
		}
	}
	for name := range accepted {
		t.Run(name, func(t *testing.T) { check(t, name, nil) })
	}
}

// check compares what a package exports with its file, and brings that up to date if asked to.
func check(t *testing.T, name string, now []string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, err)
	}
	added, gone := difference(lines(string(text)), now)
	for _, line := range gone {
		if !*accept || !*breaking {
			t.Errorf("gone or changed, which breaks programs that use it (if it is meant: make api BREAKING=yes): %s", line)
		}
	}
	for _, line := range added {
		if !*accept {
			t.Errorf("new, or what a line has changed to (if it is meant for all to use: make api): %s", line)
		}
	}
	if t.Failed() || len(added)+len(gone) == 0 {
		return
	}
	if len(now) == 0 {
		require.NoError(t, os.Remove(name))
		return
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(t, os.WriteFile(name, []byte(strings.Join(now, "\n")+"\n"), 0o644))
}

// difference of two sorted listings.
func difference(before, now []string) (added, gone []string) {
	for _, line := range now {
		if _, found := slices.BinarySearch(before, line); !found {
			added = append(added, line)
		}
	}
	for _, line := range before {
		if _, found := slices.BinarySearch(now, line); !found {
			gone = append(gone, line)
		}
	}
	return added, gone
}

// lines of a file, sorted whatever people did to it, as git for Windows does to the ends of lines.
func lines(text string) []string {
	return slices.Sorted(strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == '\r' }))
}

// fileOf is where a package's API is kept: locker.txt for the root, fence/sqlfence.txt for that.
func fileOf(path string) string {
	if path == module {
		return "locker.txt"
	}
	return strings.TrimPrefix(path, module+"/") + ".txt"
}

// files that are there.
func files(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	require.NoError(t, fs.WalkDir(os.DirFS("."), ".", func(name string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(name, ".txt") {
			found[name] = true
		}
		return err
	}))
	return found
}

// packages that a program may import of the module in dir, as the compiler has left them.
func packages(t *testing.T, dir string) []*types.Package {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "list", "-deps", "-export", "-json=ImportPath,Name,Export,DepOnly", "./...")
	command.Dir = dir
	command.Stderr = os.Stderr
	out, err := command.Output()
	require.NoError(t, err, "%s", command)
	exports := map[string]string{}
	var paths []string
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Name, Export string
			DepOnly                  bool
		}
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		exports[p.ImportPath] = p.Export
		if !p.DepOnly && p.Name != "main" && p.Export != "" && !slices.Contains(strings.Split(p.ImportPath, "/"), "internal") {
			paths = append(paths, p.ImportPath)
		}
	}
	from := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	var found []*types.Package
	for _, path := range paths {
		p, err := from.Import(path)
		require.NoError(t, err)
		if len(listing(p)) > 0 { // all exports nothing, and docs is its tests
			found = append(found, p)
		}
	}
	assert.NotEmpty(t, found, "packages in %s", dir)
	return found
}
