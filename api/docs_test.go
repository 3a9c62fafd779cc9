package api_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"io"
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

// A reader of the documentation finds a word on each name, and can follow each [Name] in it.
func TestDocs_sayWhatEachNameIsAndLinkToWhatIsThere(t *testing.T) {
	testwait.OnlyInCheck(t, "it compiles another module, and looks at text")
	for _, dir := range modules {
		for _, p := range documented(t, dir) {
			t.Run(fileOf(p.ImportPath), func(t *testing.T) {
				for _, fault := range faults(t, p, dir) {
					t.Error(fault)
				}
			})
		}
	}
}

func TestDocs_faultsAreFound(t *testing.T) {
	for _, c := range []struct{ source, fault string }{
		{"// Package p is [good].\npackage p\n", ""},
		{"package p\n", "the package has no comment"},
		{"// Package p links to [Gone].\npackage p\n", "[Gone] leads nowhere"},
		{"// Package p links to [T.Gone].\npackage p\n// T is.\ntype T int\n", "[T.Gone] leads nowhere"},
		{"// Package p links to [T.M] and [T.F].\npackage p\n// T is.\ntype T struct{ F int }\n// M is.\nfunc (T) M() {}\n", ""},
		{"// Package p links to [errors.Is].\npackage p\n", ""},
		{"// Package p links to [errors.Gone].\npackage p\n", "errors#Gone leads nowhere"},
		{"// Package p links to [unknown.Thing].\npackage p\n", "[unknown.Thing] leads nowhere"},
		{"// Package p shows\n//\n//\ta table with [T]\npackage p\n// T is.\ntype T int\n", "[T] is shown with its brackets"},
		{"// Package p is.\npackage p\nfunc F() {}\n", "F has no comment"},
		{"// Package p is.\npackage p\n// T is.\ntype T struct {\n// F is a [T].\nF int\n}\n", "[T] is shown with its brackets"},
		{"// Package p is.\npackage p\nconst (\nA = 1 // is\nB = 2\n)\n", "B has no comment"},
		{"// Package p is.\npackage p\n// A and B are.\nconst (\nA = 1\nB = 2\n)\n", ""},
	} {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, "p.go", c.source, parser.ParseComments)
		require.NoError(t, err)
		p, err := doc.NewFromFiles(fset, []*ast.File{file}, "p")
		require.NoError(t, err)
		found := strings.Join(faults(t, p, "."), "\n")
		if c.fault == "" {
			assert.Empty(t, found, c.source)
			continue
		}
		assert.Contains(t, found, c.fault, c.source)
	}
}

// documented is each package of the module in dir that others may import.
func documented(t *testing.T, dir string) []*doc.Package {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Name,Dir,GoFiles", "./...")
	command.Dir = dir
	out, err := command.Output()
	require.NoError(t, err, "%s", command)
	var found []*doc.Package
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath, Name, Dir string
			GoFiles               []string
		}
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if p.Name == "main" || len(p.GoFiles) == 0 || slices.Contains(strings.Split(p.ImportPath, "/"), "internal") {
			continue
		}
		found = append(found, read(t, p.ImportPath, p.Dir, p.GoFiles))
	}
	return found
}

func read(t *testing.T, path, dir string, names []string) *doc.Package {
	t.Helper()
	fset := token.NewFileSet()
	var parsed []*ast.File
	for _, name := range names {
		file, err := parser.ParseFile(fset, filepath.Join(dir, name), nil, parser.ParseComments)
		require.NoError(t, err)
		parsed = append(parsed, file)
	}
	p, err := doc.NewFromFiles(fset, parsed, path)
	require.NoError(t, err)
	return p
}

// faults of the documentation of a package, which is in the module in dir.
func faults(t *testing.T, p *doc.Package, dir string) []string {
	t.Helper()
	r := &reader{pkg: p, symbols: func(path string) lookup {
		if path == "" {
			return p.Parser().LookupSym
		}
		return symbolsOf(t, path, dir)
	}}
	r.read("the package", p.Doc)
	r.values(p.Consts, p.Vars)
	r.funcs("", p.Funcs)
	for _, typ := range p.Types {
		r.read(typ.Name, typ.Doc)
		r.values(typ.Consts, typ.Vars)
		r.funcs("", typ.Funcs)
		r.funcs(typ.Name+".", typ.Methods)
		ast.Inspect(typ.Decl, func(n ast.Node) bool {
			if f, ok := n.(*ast.Field); ok {
				r.shown(typ.Name, f.Doc.Text()+f.Comment.Text())
			}
			return true
		})
	}
	return r.faults
}

// lookup reports whether a package has a name.
type lookup = func(recv, name string) bool

// packagesRead are those that symbolsOf has read. The go command is run for each, which takes longer than all else.
var packagesRead = map[[2]string]lookup{}

// symbolsOf is of the package that path is in the module in dir.
func symbolsOf(t *testing.T, path, dir string) lookup {
	t.Helper()
	key := [2]string{path, dir}
	if packagesRead[key] == nil {
		module := build.Default
		var err error
		module.Dir, err = filepath.Abs(dir) // what it requires is not what the root does
		require.NoError(t, err)
		found, err := module.Import(path, module.Dir, 0)
		require.NoError(t, err)
		packagesRead[key] = read(t, path, found.Dir, found.GoFiles).Parser().LookupSym
	}
	return packagesRead[key]
}

type reader struct {
	pkg     *doc.Package
	symbols func(path string) lookup // "" is pkg itself
	faults  []string
}

func (r *reader) fault(format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

func (r *reader) values(groups ...[]*doc.Value) {
	for _, v := range slices.Concat(groups...) {
		r.links(v.Names[0], v.Doc)
		for _, spec := range v.Decl.Specs {
			spec := spec.(*ast.ValueSpec)
			text := spec.Doc.Text() + spec.Comment.Text()
			for _, name := range spec.Names {
				if name.IsExported() && v.Doc+text == "" {
					r.fault("%s has no comment", name)
				}
			}
			r.links(spec.Names[0].Name, text)
		}
	}
}

func (r *reader) funcs(prefix string, funcs []*doc.Func) {
	for _, f := range funcs {
		r.read(prefix+f.Name, f.Doc)
	}
}

// read is links for what has to have a comment.
func (r *reader) read(name, text string) {
	if text == "" {
		r.fault("%s has no comment", name)
	}
	r.links(name, text)
}

// bracketed is what is meant for a link, and neither an index nor, in an address, a part that may be left out.
var bracketed = regexp.MustCompile(`\[\*?([a-z][\w/.-]*\.)?[A-Z]\w*(\.[A-Z]\w*)?\]`)

func (r *reader) links(name, text string) {
	r.blocks(name, r.pkg.Parser().Parse(text).Content)
}

func (r *reader) blocks(name string, blocks []comment.Block) {
	for _, b := range blocks {
		switch b := b.(type) {
		case *comment.Paragraph:
			r.text(name, b.Text)
		case *comment.Heading:
			r.text(name, b.Text)
		case *comment.List:
			for _, item := range b.Items {
				r.blocks(name, item.Content)
			}
		case *comment.Code:
			r.shown(name, b.Text)
		}
	}
}

// shown is text that is shown as it is: that of a block of code, or within a declaration.
func (r *reader) shown(name, text string) {
	for _, s := range bracketed.FindAllString(text, -1) {
		r.fault("%s: %s is shown with its brackets, and is no link there", name, s)
	}
}

func (r *reader) text(name string, text []comment.Text) {
	for _, part := range text {
		switch part := part.(type) {
		case comment.Plain:
			for _, s := range bracketed.FindAllString(string(part), -1) {
				r.fault("%s: %s leads nowhere", name, s)
			}
		case *comment.DocLink:
			// The parser has looked up names of the package itself, and of others only the package.
			if part.ImportPath != "" && part.Name != "" && !r.symbols(part.ImportPath)(part.Recv, part.Name) {
				r.fault("%s: %s leads nowhere", name, strings.TrimPrefix(part.DefaultURL(""), "/"))
			}
		}
	}
}
