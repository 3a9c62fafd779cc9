// Package api holds the exported API of each package, as text, and the test that compares it with
// the code.
//
// Each file is a package, each line something that programs may depend on. `make api` writes the
// files anew. A line that goes, or changes, breaks programs: docs/compatibility.md says when it
// may.
package api_test

import (
	"cmp"
	"flag"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testwait"
)

var accept = flag.Bool("accept", false, "write what is exported now into the files of this folder")

const module = "github.com/go-locker/locker"

// The modules that other programs import. cmd/locker, bench and the examples have nothing for them.
var modules = []string{"..", "../kubernetes", "../lockervet", "../otel", "../s3", "../sql", "../integrations/certmagic", "../integrations/clientgo", "../integrations/gocron", "../integrations/golangmigrate", "../integrations/goose", "../integrations/tusd"}

func TestAPI_isWhatWasAccepted(t *testing.T) {
	if !*accept {
		testwait.OnlyNightly(t, "it compiles another module, and looks at text")
	}
	now := map[string][]string{}
	accepted, err := filepath.Glob("*.txt")
	require.NoError(t, err)
	for _, name := range accepted {
		now[name] = nil
	}
	for _, dir := range modules {
		for _, p := range packages(t, dir, "./...") {
			name, prefix := fileOf(p.Path())
			for _, line := range listing(p) {
				now[name] = append(now[name], prefix+line)
			}
		}
	}
	for name, listed := range now {
		t.Run(name, func(t *testing.T) { check(t, name, lines(strings.Join(listed, "\n"))) })
	}
}

// check compares what a package exports with its file, or writes that.
func check(t *testing.T, name string, now []string) {
	t.Helper()
	switch {
	case !*accept:
		text, _ := os.ReadFile(name) // a new package has none
		assert.Equal(t, lines(string(text)), now, "for all to use? what is gone or has changed breaks programs. If all is meant: make api")
	case len(now) == 0:
		require.NoError(t, os.Remove(name))
	default:
		require.NoError(t, os.WriteFile(name, []byte(strings.Join(now, "\n")+"\n"), 0o644))
	}
}

// lines of a file, sorted whatever people did to it, as git for Windows does to the ends of lines.
func lines(text string) []string {
	return slices.Sorted(strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == '\r' }))
}

// fileOf is where a package's API is kept, and what its lines begin with: locker.txt for the root;
// fence.txt, with sqlfence in front, for fence/sqlfence.
func fileOf(path string) (name, prefix string) {
	first, rest, nested := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(path, module), "/"), "/")
	if nested {
		prefix = rest + ": "
	}
	return cmp.Or(first, "locker") + ".txt", prefix
}

// packages returns the packages of the module in dir that match pattern and that a program may
// import, from the compiler's export data.
func packages(t *testing.T, dir, pattern string) []*types.Package {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "list", "-deps", "-export", "-f", "{{.ImportPath}} {{.Name}} {{.DepOnly}} {{.Export}}", pattern)
	command.Dir = dir
	command.Stderr = os.Stderr
	out, err := command.Output()
	require.NoError(t, err, "%s", command)
	exports := map[string]string{}
	var paths []string
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 4 { // nothing of it is compiled
			continue
		}
		path, name, depOnly, export := fields[0], fields[1], fields[2], fields[3]
		exports[path] = export
		if depOnly == "false" && name != "main" && !slices.Contains(strings.Split(path, "/"), "internal") {
			paths = append(paths, path)
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

// listing is what a package exports, a line each, in order: two listings differ where a program
// that compiles with the one may not with the other. Names of parameters are left out, for they
// bind nobody.
func listing(p *types.Package) []string {
	l := &lister{pkg: p, uses: map[string]bool{}}
	for _, name := range p.Scope().Names() {
		if object := p.Scope().Lookup(name); object.Exported() {
			l.object(object)
		}
	}
	// Of a type that another module has the other lines show no more than its package's name, which
	// v9 and v10 share.
	for path := range l.uses {
		l.add("uses %s", path)
	}
	slices.Sort(l.lines)
	return slices.Compact(l.lines)
}

type lister struct {
	pkg   *types.Package
	uses  map[string]bool
	lines []string
}

func (l *lister) add(format string, args ...any) {
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *lister) object(object types.Object) {
	switch object := object.(type) {
	case *types.Const:
		l.add("const %s %s = %s", object.Name(), l.text(object.Type()), object.Val().ExactString())
	case *types.Var:
		l.add("var %s %s", object.Name(), l.text(object.Type()))
	case *types.Func:
		l.add("func %s%s", object.Name(), l.signature(object))
	case *types.TypeName:
		l.typeName(object)
	}
}

func (l *lister) typeName(object *types.TypeName) {
	name := object.Name()
	if object.IsAlias() {
		l.add("type %s = %s", name, l.text(types.Unalias(object.Type())))
		return
	}
	named := object.Type().(*types.Named)
	head := "type " + types.TypeString(named, types.RelativeTo(l.pkg)) // with its parameters
	switch u := named.Underlying().(type) {
	case *types.Struct:
		l.fields(head, u)
	case *types.Interface:
		l.abstract(head, u)
		return
	default:
		l.add("%s %s", head, l.text(u))
	}
	l.methods(name, named)
}

func (l *lister) fields(head string, s *types.Struct) {
	l.add("%s struct", head)
	for f := range s.Fields() {
		if !f.Exported() {
			continue
		}
		if f.Embedded() {
			l.add("%s struct, embeds %s", head, l.text(f.Type()))
		} else {
			l.add("%s struct, %s %s", head, f.Name(), l.text(f.Type()))
		}
		// What people fill in they may compare, too, or have as a key of a map. A new field can
		// take that away.
		if types.Comparable(s) {
			l.add("%s struct, comparable", head)
		}
	}
}

// abstract has all methods of an interface in one line, so that a new one changes it: a type that
// implements the interface has to add it. One that has unexported methods nobody else can
// implement, and it may grow.
func (l *lister) abstract(head string, i *types.Interface) {
	if !i.IsMethodSet() {
		l.add("%s %s", head, l.text(i))
		return
	}
	var names []string
	closed := false
	for m := range i.Methods() {
		if !m.Exported() {
			closed = true
			continue
		}
		names = append(names, m.Name())
		l.add("%s interface, %s%s", head, m.Name(), l.signature(m))
	}
	if closed {
		names = []string{"unexported methods"}
	}
	l.add("%s interface { %s }", head, strings.Join(names, ", "))
}

// methods are those of a value and of a pointer to one, promoted ones too.
func (l *lister) methods(name string, named *types.Named) {
	values := types.NewMethodSet(named)
	for m := range types.NewMethodSet(types.NewPointer(named)).Methods() {
		if !m.Obj().Exported() {
			continue
		}
		receiver := "*" + name
		if values.Lookup(l.pkg, m.Obj().Name()) != nil {
			receiver = name
		}
		l.add("method (%s) %s%s", receiver, m.Obj().Name(), l.signature(m.Obj().(*types.Func)))
	}
}

// signature is that of a function or method, from its type parameters or parentheses on.
func (l *lister) signature(f *types.Func) string {
	return strings.TrimPrefix(l.text(f.Signature()), "func")
}

func (l *lister) text(t types.Type) string {
	if basic, ok := t.(*types.Basic); ok {
		return basic.Name() // "untyped int", too
	}
	return nameless(types.TypeString(t, func(p *types.Package) string {
		if p == l.pkg {
			return ""
		}
		if first, _, _ := strings.Cut(p.Path(), "/"); strings.Contains(first, ".") && !strings.HasPrefix(p.Path(), module) {
			l.uses[p.Path()] = true
		}
		return p.Name()
	}))
}

var (
	// The name of a parameter or result, the delimiter before it, and the first character of its
	// type.
	named = regexp.MustCompile(`([(,] ?)(\w+) ([\w*.<(\[])`)
	// A single result in parentheses: it had a name.
	lone   = regexp.MustCompile(`\) \(((?:func\(\)|[^(),])+)\)`)
	spaced = regexp.MustCompile(`interface\{(.+)\}`)
)

// nameless returns a type's text without the names of parameters and results in its function types.
func nameless(text string) string {
	text = named.ReplaceAllStringFunc(text, func(found string) string {
		parts := named.FindStringSubmatch(found)
		if parts[2] == "chan" {
			return found
		}
		return parts[1] + parts[3]
	})
	return spaced.ReplaceAllString(lone.ReplaceAllString(text, ") $1"), "interface { $1 }")
}

// go doc shows only the comment of an alias, so the comment of an alias for a struct lists its
// fields.
func TestAliases_showTheFieldsOfTheirStructs(t *testing.T) {
	files, err := filepath.Glob("../*.go")
	require.NoError(t, err)
	source, aliases := "", 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		source += string(text)
	}
	root := packages(t, "..", ".")[0]
	for _, name := range root.Scope().Names() {
		object, ok := root.Scope().Lookup(name).(*types.TypeName)
		if !ok || !object.IsAlias() {
			continue
		}
		fields, ok := object.Type().Underlying().(*types.Struct)
		if !ok {
			continue
		}
		aliases++
		var want, shown []string
		for f := range fields.Fields() {
			typ := types.TypeString(f.Type(), (*types.Package).Name)
			want = append(want, f.Name()+" "+strings.ReplaceAll(typ, "driver.", ""))
		}
		comment, _, _ := strings.Cut(source, "\ntype "+name+" = ")
		comment = comment[strings.LastIndex(comment, "\n\n"):]
		for _, line := range regexp.MustCompile(`(?m)^//\t\t(\w+) +([^ \n]+)`).FindAllStringSubmatch(comment, -1) {
			shown = append(shown, line[1]+" "+line[2])
		}
		assert.Equal(t, want, shown, name)
	}
	assert.GreaterOrEqual(t, aliases, 5)
}
