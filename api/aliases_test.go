package api_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	gotypes "go/types"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// go doc shows of an alias its comment alone. So the comment of one for a struct has the fields.
func TestAliases_showTheFieldsOfTheirStructs(t *testing.T) {
	structs := map[string]string{}
	for name, spec := range typesIn(t, "../driver") {
		if s, ok := spec.Type.(*ast.StructType); ok {
			structs[name] = fieldsOf(s)
		}
	}
	aliases := 0
	for name, spec := range typesIn(t, "..") {
		of, ok := spec.Type.(*ast.SelectorExpr)
		if !ok || structs[of.Sel.Name] == "" {
			continue
		}
		aliases++
		var code strings.Builder
		for line := range strings.Lines(spec.Doc.Text()) {
			if block, ok := strings.CutPrefix(line, "\t"); ok {
				code.WriteString(block)
			}
		}
		shown, err := parser.ParseFile(token.NewFileSet(), name, "package p\n"+code.String(), 0)
		if assert.NoError(t, err, name) && assert.Len(t, shown.Decls, 1, "%s: its fields, as code", name) {
			s := shown.Decls[0].(*ast.GenDecl).Specs[0].(*ast.TypeSpec).Type.(*ast.StructType)
			assert.Equal(t, structs[of.Sel.Name], fieldsOf(s), name)
		}
	}
	assert.GreaterOrEqual(t, aliases, 5)
}

// typesIn returns the types that the package in dir declares, each with its comment.
func typesIn(t *testing.T, dir string) map[string]*ast.TypeSpec {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	found := map[string]*ast.TypeSpec{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments)
		require.NoError(t, err)
		for _, d := range file.Decls {
			if d, ok := d.(*ast.GenDecl); ok && d.Tok == token.TYPE {
				for _, s := range d.Specs {
					spec := s.(*ast.TypeSpec)
					if spec.Doc == nil {
						spec.Doc = d.Doc
					}
					found[spec.Name.Name] = spec
				}
			}
		}
	}
	return found
}

// fieldsOf returns names and types of fields, in their order.
func fieldsOf(s *ast.StructType) string {
	var all []string
	for _, f := range s.Fields.List {
		for _, name := range f.Names {
			all = append(all, name.Name+" "+gotypes.ExprString(f.Type))
		}
	}
	return strings.Join(all, "\n")
}
