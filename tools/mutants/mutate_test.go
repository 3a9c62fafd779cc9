package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

const (
	addition = `
func (c *calc) add(a, b int) (int, error) {
	if a < 0 && b > 0 {
		return 0, failed
	}
	switch a {
	case 1:
		c.note(a)
	}
	c.sum += a + b
	return c.sum, nil
}
`
	subtraction = "func subtract(a, b int) int { return a - b }\n"
	script      = "if a == 1 and b then -- 2 and 3\n  redis.call('SET', 'and 1', 4)\nend\n"
)

func TestMutants(t *testing.T) {
	all := mutants(t, map[string]string{"a.go": "package p\n" + addition, "b.lua": script})
	var changes []string
	for _, m := range all {
		changes = append(changes, m.where+": "+m.change)
	}
	for _, want := range []string{
		"calc.add: a < 0 && b > 0 → !(a < 0 && b > 0)",
		"calc.add: a < 0 && b > 0 → a < 0 || b > 0",
		"calc.add: a < 0 → a <= 0",
		"calc.add: failed → nil",
		"calc.add: case 1: → break",
		"calc.add: c.note(a) →",
		"calc.add: c.sum += a + b →",
		"calc.add: a + b → a - b",
		"calc.add: 1 → 2",
		`b.lua: if a == 1 and b then: "==" → "~="`,
		`b.lua: if a == 1 and b then: " and " → " or "`,
		`b.lua: if a == 1 and b then: "a == 1 and b" → "not (a == 1 and b)"`,
		`b.lua: if a == 1 and b then: "1" → "2"`,
		`b.lua: redis.call('SET', 'and 1', 4): "4" → "5"`,
		`b.lua: redis.call('SET', 'and 1', 4): " redis.call('SET', 'and 1', 4)" → ""`,
	} {
		if !slices.Contains(changes, want) {
			t.Errorf("expected %q among %q", want, changes)
		}
	}
	for _, m := range all {
		if filepath.Ext(m.file) != ".go" {
			continue
		}
		dir := t.TempDir()
		write(dir, m)
		_, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, "a.go"), nil, 0)
		if err != nil {
			t.Errorf("%s is no Go any more: %v", m.change, err)
		}
	}
}

func TestMutants_areKnownInAnotherFile(t *testing.T) {
	here := mutants(t, map[string]string{"a.go": "package p\n" + addition + subtraction})
	moved := mutants(t, map[string]string{
		"other.go": "package p\n" + subtraction,
		"z.go":     "package p\n\n// Moved.\n" + addition,
	})
	if !slices.Equal(ids(here), ids(moved)) {
		t.Errorf("expected %v, seen %v", ids(here), ids(moved))
	}
}

func TestPattern(t *testing.T) {
	if got, want := pattern("TestA/b+c", "TestD|TestE"), `^TestA$/^b\+c$|^TestD$|^TestE$`; got != want {
		t.Errorf("expected %s, seen %s", want, got)
	}
	if got := pattern(); got != "" {
		t.Errorf("expected no pattern of no tests, seen %s", got)
	}
}

func mutants(t *testing.T, files map[string]string) []mutant {
	repo := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(repo, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return sample(repo, []target{{dir: "."}}, 1)
}

func ids(all []mutant) (ids []string) {
	for _, m := range all {
		ids = append(ids, m.id)
	}
	return ids
}
