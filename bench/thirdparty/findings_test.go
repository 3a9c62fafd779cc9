package thirdparty

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/conformance"
)

// libraryHere is the one that the test is for.
func libraryHere(t *testing.T) Library {
	t.Helper()
	for _, l := range All() {
		if l.Test == t.Name() {
			if l.Module != "" {
				t.Logf("%s %s", l.Module, required(t, l.Module))
			}
			t.Log(l.Settings)
			return l
		}
	}
	t.Fatal("no library names this test")
	return Library{}
}

func TestLibraries_findingsHaveTheirTests(t *testing.T) {
	tests := testsHere(t)
	scenarios := make(map[string]conformance.Scenario)
	for _, s := range conformance.Scenarios() {
		scenarios[s.Name] = s
	}
	shown := make(map[string]bool)
	page, err := os.ReadFile("../../docs/known-breaks.md")
	require.NoError(t, err)
	for _, l := range All() {
		assert.Contains(t, tests, l.Test)
		assert.True(t, l.Language != "" || required(t, l.Module) != "", "%s: %s is no requirement of this module", l.Name, l.Module)
		causes := make(map[string]int)
		for _, f := range l.Findings {
			assert.Contains(t, tests, f.Repro, "%s: %s", l.Name, f.Cause)
			if !f.Lacks {
				assert.Contains(t, string(page), "`"+strings.TrimPrefix(f.Repro, "TestRepro_")+"`", "the page has the break")
			}
			for _, name := range f.Scenarios {
				require.Contains(t, scenarios, name, l.Name)
				causes[name]++
				if scenarios[name].Deterministic {
					assert.Equal(t, 1, causes[name], "%s: causes of %q", l.Name, name)
				}
			}
			for _, name := range f.Sometimes {
				require.Contains(t, scenarios, name, l.Name)
				assert.True(t, scenarios[name].Deterministic, "%s: %q needs luck of every lock", l.Name, name)
				assert.Zero(t, causes[name], "%s: %q fails sometimes, and always", l.Name, name)
			}
			shown[f.Repro] = true
		}
	}
	for name := range tests {
		if strings.HasPrefix(name, "TestRepro_") {
			assert.True(t, shown[name], "no finding names %s", name)
		}
	}
}

// required is the version of a module in go.mod: binaries of tests know none.
func required(t *testing.T, module string) string {
	t.Helper()
	mod, err := os.ReadFile("../go.mod")
	require.NoError(t, err)
	for line := range strings.Lines(string(mod)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == module {
			return fields[1]
		}
	}
	return ""
}

// testsHere are the functions in the test files of this package.
func testsHere(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	names := make(map[string]bool)
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				names[f.Name.Name] = true
			}
		}
	}
	return names
}
