package conformance

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// topics are the files of the scenarios, by their pages in docs/conformance. All other files are
// for scenarios of every topic.
var topics = map[string][]string{
	"taking":             {"exclusion.go", "try.go", "context.go", "cancel.go", "handover.go", "watchedcontext.go", "names.go"},
	"waiting":            {"waiting.go", "wanted.go", "sharing.go"},
	"holding":            {"expiry.go", "ttl.go", "client.go", "unlock.go", "loss.go"},
	"tokens":             {"token.go", "counter.go"},
	"servers":            {"silence.go", "outage.go", "faultrows.go"},
	"network":            {"replies.go", "network.go", "late.go", "crash.go"},
	"read-write":         {"readwrite.go", "downgrade.go", "rwqueue.go", "rwshares.go"},
	"readers-and-faults": {"rwfaults.go"},
	"histories":          {"histories.go", "nemesis.go", "simulation.go", "hits.go", "player.go", "rwhistory.go"},
}

// Files use those of lower layers alone. A topic is on top of what is there for all, and beside the
// others: only the list of all scenarios knows it.
func TestFiles_areInLayers(t *testing.T) {
	topicOf := map[string]string{"scenarios.go": ""}
	for topic, files := range topics {
		for _, file := range files {
			topicOf[file] = topic
		}
	}
	uses, tables := filesOf(t)
	for _, file := range tables {
		assert.NotEmpty(t, topicOf[file], "%s has scenarios, and is of no topic", file)
	}
	for user, used := range uses {
		for file, name := range used {
			if topic := topicOf[file]; topic != "" && user != "scenarios.go" {
				assert.Equal(t, topic, topicOf[user], "%s uses %s of %s", user, name, file)
			}
		}
	}
	for len(uses) > 0 {
		lowest := slices.DeleteFunc(slices.Collect(maps.Keys(uses)), func(file string) bool { return len(uses[file]) > 0 })
		if !assert.NotEmpty(t, lowest, "files that use one another in a circle, or are above one: %v", uses) {
			return
		}
		for _, file := range lowest {
			delete(uses, file)
			for _, used := range uses {
				delete(used, file)
			}
		}
	}
}

// filesOf returns the files of this package, each with those that it uses, and a name of theirs.
// tables are those that declare scenarios.
func filesOf(t *testing.T) (uses map[string]map[string]string, tables []string) {
	t.Helper()
	pkg, err := build.ImportDir(".", 0)
	require.NoError(t, err)
	set := token.NewFileSet()
	uses = map[string]map[string]string{}
	var files []*ast.File
	for _, name := range pkg.GoFiles {
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, file)
		uses[name] = map[string]string{}
	}
	at := func(p token.Pos) string { return set.Position(p).Filename }
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: none{}, Error: func(error) {}} // other packages are not looked at
	own, _ := config.Check(pkg.ImportPath, set, files, info)
	for id, object := range info.Uses {
		if user, file := at(id.Pos()), at(object.Pos()); object.Pkg() == own && user != file {
			uses[user][file] = id.Name
		}
	}
	for _, name := range own.Scope().Names() {
		object := own.Scope().Lookup(name)
		if s, ok := object.Type().(*types.Slice); ok && types.Identical(s.Elem(), own.Scope().Lookup("row").Type()) {
			tables = append(tables, at(object.Pos()))
		}
	}
	require.NotEmpty(t, tables)
	return uses, tables
}

// none is an importer of packages without names.
type none struct{}

func (none) Import(name string) (*types.Package, error) {
	p := types.NewPackage(name, path.Base(name))
	p.MarkComplete()
	return p, nil
}
