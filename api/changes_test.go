package api_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestListing_changesWhereProgramsBreak(t *testing.T) {
	for _, c := range []struct{ what, before, after string }{
		{"a function is gone", `func F() {}`, `func f() {}`},
		{"a parameter more", `func F(a int) {}`, `func F(a, b int) {}`},
		{"another parameter", `func F(a int) {}`, `func F(a string) {}`},
		{"a variadic parameter more", `func F(a int) {}`, `func F(a int, more ...int) {}`},
		{"another result", `func F() (err error) { return nil }`, `func F() (n int, err error) { return 0, nil }`},
		{"a parameter of a function's parameter", `func F(f func(a int) error) {}`, `func F(f func(a string) error) {}`},
		{"a type parameter", `func F(a int) {}`, `func F[T any](a int) {}`},
		{"the constraint of a type parameter", `func F[T any](a T) {}`, `func F[T comparable](a T) {}`},
		{"the constraint of a type's parameter", `type T[E any] struct{}`, `type T[E comparable] struct{}`},
		{"the value of a constant", `const C = 1`, `const C = 2`},
		{"the type of a constant", `const C = 1`, `const C int = 1`},
		{"the type of a variable", `var V int`, `var V uint`},
		{"the type below a type", `type T int`, `type T uint`},
		{"what an alias stands for", `type T = int`, `type T = uint`},
		{"a field is gone", `type T struct{ A, B int }`, `type T struct{ A int }`},
		{"a field's type", `type T struct{ A int }`, `type T struct{ A uint }`},
		{"a field that does not compare", `type T struct{ A int }`, `type T struct{ A int; b []int }`},
		{"a field that was embedded", `type E struct{}; type T struct{ E }`, `type E struct{}; type T struct{ E E }`},
		{"a method is gone", `type T int; func (T) M() {}`, `type T int`},
		{"a method that values had", `type T int; func (T) M() {}`, `type T int; func (*T) M() {}`},
		{"a method that was promoted", `type e struct{}; func (e) M() {}; type T struct{ e }`, `type e struct{}; func (e) M() {}; type T struct{ f e }`},
		{"an interface's method is gone", `type I interface{ M(); N() }`, `type I interface{ M() }`},
		{"an interface that others implement grows", `type I interface{ M() }`, `type I interface{ M(); N() }`},
		{"an interface grows by what it embeds", `type e interface{}; type I interface{ M(); e }`, `type e interface{ N() }; type I interface{ M(); e }`},
		{"an interface can be implemented no more", `type I interface{ M() }`, `type I interface{ M(); n() }`},
		{"the types of a constraint", `type I interface{ ~int | ~uint }`, `type I interface{ ~int }`},
		{"a pointer", `var V int`, `var V *int`},
	} {
		t.Run(c.what, func(t *testing.T) {
			_, gone := difference(listing(compile(t, c.before)), listing(compile(t, c.after)))
			assert.NotEmpty(t, gone)
		})
	}
}

func TestListing_onlyGrowsWhereProgramsStillCompile(t *testing.T) {
	for _, c := range []struct{ what, before, after string }{
		{"a new function", ``, `func F() {}`},
		{"a new field", `type T struct{ A int }`, `type T struct{ A, B int }`},
		{"a new method", `type T int`, `type T int; func (T) M() {}`},
		{"an interface that only we implement grows", `type I interface{ m() }`, `type I interface{ m(); N() }`},
	} {
		t.Run(c.what, func(t *testing.T) {
			added, gone := difference(listing(compile(t, c.before)), listing(compile(t, c.after)))
			assert.Empty(t, gone)
			assert.NotEmpty(t, added)
		})
	}
}

func TestListing_staysAsItIsWhereNobodyNotices(t *testing.T) {
	for _, c := range []struct{ what, before, after string }{
		{"names of parameters and results", `func F(a int, f func(b int)) (c error) { return nil }`, `func F(x int, f func(y int)) error { return nil }`},
		{"what is not exported", `type t int; func (t) M() {}; func f() {}; var v int; const c = 1`, ``},
		{"a field that is not exported", `type T struct{ a int; c chan int }`, `type T struct{ b []int }`},
		{"a method that is not exported", `type T int; func (T) m() {}`, `type T int`},
		{"order", `func A() {}; type B interface{ N(); M() }`, `type B interface{ M(); N() }; func A() {}`},
	} {
		t.Run(c.what, func(t *testing.T) {
			assert.Equal(t, listing(compile(t, c.before)), listing(compile(t, c.after)))
		})
	}
}

func TestListing_namesTheLibrariesThatAreSeen(t *testing.T) {
	lines := listing(seen("example.com/zk/v2"))
	assert.Contains(t, lines, "var V zk.Conn")
	assert.Contains(t, lines, "uses example.com/zk/v2")
	assert.NotContains(t, listing(seen("log/slog")), "uses log/slog")
}

func compile(t *testing.T, source string) *types.Package {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", "package p; "+source, 0)
	require.NoError(t, err)
	p, err := new(types.Config).Check("p", fset, []*ast.File{file}, nil)
	require.NoError(t, err)
	return p
}

// seen is a package with a variable V of type Conn of the package at path.
func seen(path string) *types.Package {
	library := types.NewPackage(path, "zk")
	conn := types.NewNamed(types.NewTypeName(token.NoPos, library, "Conn", nil), types.NewStruct(nil, nil), nil)
	p := types.NewPackage("p", "p")
	p.Scope().Insert(types.NewVar(token.NoPos, p, "V", conn))
	return p
}
