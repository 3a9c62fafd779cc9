// Package lockervet finds mistakes in the use of package locker, and of the packages built on it.
// Code with such a mistake compiles, and works until a lock is lost or an error comes. The command
// of cmd/lockervet is for go vet; [Analyzer] is for programs that run several analyzers.
//
//	go install github.com/go-locker/locker/lockervet/cmd/lockervet@latest
//	go vet -vettool=$(which lockervet) ./...
//
// # What it reports
//
//   - In the function that Do calls: work with the context that Do was given, or with a new one, in
//     place of the function's own. The work then goes on when the lock is lost.
//   - In that function: a goroutine that uses the lock and that the function does not wait for. Do
//     unlocks before the goroutine ends.
//   - A Lock, TryLock, Do, TryDo or Unlock whose error is dropped. Assign it to _ if you mean it.
//   - An Acquire or TryAcquire whose hold is dropped, also by assigning it to _.
//   - A deferred Unlock with a context that is cancelled or has a limit: the caller does not learn
//     whether the hold lasted. Pass context.WithoutCancel of it.
//   - An Unlock that is not deferred, with a return between Lock, TryLock, Acquire or TryAcquire and
//     Unlock that leaves the lock taken.
//   - An Unlock of a Mutex that was made in the same expression, and so holds nothing.
//
// It looks at one function at a time, and says nothing if it is not sure. A Mutex that is copied by
// value is found by go vet itself (copylocks).
package lockervet

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/types/typeutil"
)

// Analyzer reports mistakes in the use of locks. It has no options.
var Analyzer = &analysis.Analyzer{
	Name:     "lockervet",
	Doc:      "report mistakes in the use of the locks of github.com/go-locker/locker",
	URL:      "https://pkg.go.dev/github.com/go-locker/locker/lockervet",
	Requires: []*analysis.Analyzer{inspect.Analyzer},
	Run:      run,
}

const module = "github.com/go-locker/locker"

// The packages of the module whose locks are used as those of the root are.
var packages = []string{module, module + "/election", module + "/keyed", module + "/multi", module + "/semaphore"}

// pass is the analysis of one package.
type pass struct {
	*analysis.Pass
}

func run(ap *analysis.Pass) (any, error) {
	p := pass{ap}
	root := ap.ResultOf[inspect.Analyzer].(*inspector.Inspector).Root()
	for c := range root.Preorder((*ast.CallExpr)(nil), (*ast.BlockStmt)(nil), (*ast.CaseClause)(nil), (*ast.CommClause)(nil)) {
		switch n := c.Node().(type) {
		case *ast.CallExpr:
			p.checkDo(n)
			p.checkUnlock(c, n)
		case *ast.BlockStmt:
			p.checkReturns(n.List)
		case *ast.CaseClause:
			p.checkReturns(n.Body)
		case *ast.CommClause:
			p.checkReturns(n.Body)
		}
	}
	return nil, nil
}

// method returns the name of the method of one of our packages that is called, and its receiver.
// The name is empty if it is something else.
func (p pass) method(call *ast.CallExpr) (name string, receiver ast.Expr) {
	f, ok := typeutil.Callee(p.TypesInfo, call).(*types.Func)
	selector, isSelector := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok || !isSelector || f.Signature().Recv() == nil || f.Pkg() == nil || !slices.Contains(packages, f.Pkg().Path()) {
		return "", nil
	}
	return f.Name(), selector.X
}

// function returns the full name of the function or method that e calls, as context.WithCancel or
// (*testing.common).Context. It is empty if e is no such call.
func (p pass) function(e ast.Expr) string {
	if call, ok := ast.Unparen(e).(*ast.CallExpr); ok {
		if f, ok := typeutil.Callee(p.TypesInfo, call).(*types.Func); ok {
			return f.FullName()
		}
	}
	return ""
}

// isTest reports whether n is in a test.
func (p pass) isTest(n ast.Node) bool {
	return strings.HasSuffix(p.Fset.Position(n.Pos()).Filename, "_test.go")
}

// isContext reports whether e is a context.Context.
func (p pass) isContext(e ast.Expr) bool {
	t := p.TypesInfo.TypeOf(e)
	return t != nil && types.TypeString(t, nil) == "context.Context"
}

// isNewContext reports whether e is context.Background() or context.TODO().
func (p pass) isNewContext(e ast.Expr) bool {
	return slices.Contains([]string{"context.Background", "context.TODO"}, p.function(e))
}

// isTestContext reports whether e is the Context of a test, which ends when the test has.
func (p pass) isTestContext(e ast.Expr) bool {
	name := p.function(e)
	return strings.HasPrefix(name, "(*testing.") || strings.HasPrefix(name, "(testing.")
}

// object returns what the identifier e means, or nil if e is none.
func (p pass) object(e ast.Expr) types.Object {
	id, ok := ast.Unparen(e).(*ast.Ident)
	if !ok {
		return nil
	}
	return p.TypesInfo.ObjectOf(id)
}

// same reports whether two expressions mean the same variable, field or result of a method without
// arguments, as m, s.lock and r.Context() do. It compares text, and what the identifiers mean.
func (p pass) same(a, b ast.Expr) bool {
	if types.ExprString(a) != types.ExprString(b) {
		return false
	}
	var of [2][]types.Object
	for i, e := range []ast.Expr{a, b} {
		for n := range ast.Preorder(e) {
			switch n := n.(type) {
			case *ast.Ident:
				of[i] = append(of[i], p.TypesInfo.ObjectOf(n))
			case *ast.FuncLit, *ast.IndexExpr, *ast.BinaryExpr:
				return false
			}
		}
	}
	return slices.Equal(of[0], of[1])
}

// uses reports whether node mentions obj.
func (p pass) uses(node ast.Node, obj types.Object) bool {
	if obj == nil {
		return false
	}
	for n := range ast.Preorder(node) {
		if id, ok := n.(*ast.Ident); ok && p.TypesInfo.ObjectOf(id) == obj {
			return true
		}
	}
	return false
}

// doers call a function under a lock, with a context that ends with it.
var doers = []string{"Do", "TryDo", "RDo", "TryRDo", "Join", "Lead"}

// checkDo looks at the function that a Do or the like calls, if it is written in the call.
func (p pass) checkDo(call *ast.CallExpr) {
	name, receiver := p.method(call)
	if !slices.Contains(doers, name) || len(call.Args) < 2 {
		return
	}
	f, ok := call.Args[len(call.Args)-1].(*ast.FuncLit)
	if !ok {
		return
	}
	var own types.Object // the function's context; nil if it has no name
	var params []types.Object
	for _, field := range f.Type.Params.List {
		for _, id := range field.Names {
			if id.Name != "_" {
				params = append(params, p.TypesInfo.Defs[id])
			}
		}
	}
	if first := f.Type.Params.List[0]; len(first.Names) > 0 && first.Names[0].Name != "_" {
		own = p.TypesInfo.Defs[first.Names[0]]
	}
	p.checkContexts(name, call.Args[0], f, own)
	p.checkGoroutines(name, receiver, f, params)
}

// checkContexts reports calls in f that have another context than f's own: outer, which Do was
// given, or, if f does not use its own at all, a new one. An Unlock needs one that goes on.
func (p pass) checkContexts(name string, outer ast.Expr, f *ast.FuncLit, own types.Object) {
	if p.isTestContext(outer) {
		return
	}
	unused := !p.uses(f.Body, own)
	for n := range ast.Preorder(f.Body) {
		call, ok := n.(*ast.CallExpr)
		if !ok || p.function(call) == "context.WithoutCancel" {
			continue
		}
		if method, _ := p.method(call); method == "Unlock" {
			continue
		}
		for _, arg := range call.Args {
			switch {
			case !p.isContext(arg):
			case p.isNewContext(arg):
				if unused {
					p.Reportf(arg.Pos(), "%s does not end when the lock is lost: use the context that %s gives to its function", types.ExprString(arg), name)
				}
			case p.same(arg, outer):
				p.Reportf(arg.Pos(), "%s, which %s was given, does not end when the lock is lost: use the context that %s gives to its function",
					types.ExprString(arg), name, name)
			}
		}
	}
}

// checkGoroutines reports goroutines that f starts and that use the lock, if f waits for nothing
// afterwards: they outlive the hold.
func (p pass) checkGoroutines(name string, receiver ast.Expr, f *ast.FuncLit, params []types.Object) {
	lock := p.object(receiver)
	var started []*ast.GoStmt
	waits := false
	for n := range ast.Preorder(f.Body) {
		switch n := n.(type) {
		case *ast.GoStmt:
			started = append(started, n)
		case *ast.SelectStmt:
			waits = true
		case *ast.UnaryExpr:
			waits = waits || n.Op == token.ARROW && !inside(n, started)
		case *ast.RangeStmt:
			_, isChan := p.TypesInfo.TypeOf(n.X).Underlying().(*types.Chan)
			waits = waits || isChan && !inside(n, started)
		case *ast.CallExpr:
			waits = waits || p.mayWait(n) && !inside(n, started)
		}
	}
	if waits {
		return
	}
	for _, g := range started {
		used := p.uses(g, lock) || slices.ContainsFunc(params, func(o types.Object) bool { return p.uses(g, o) })
		if used {
			p.Reportf(g.Pos(), "this goroutine uses the lock and may outlive it: %s unlocks when its function returns, which does not wait for the goroutine", name)
		}
	}
}

// mayWait reports whether call may wait for a goroutine: it is named Wait, or is given a channel, a
// function or something that has a Wait.
func (p pass) mayWait(call *ast.CallExpr) bool {
	if selector, ok := call.Fun.(*ast.SelectorExpr); ok && selector.Sel.Name == "Wait" {
		return true
	}
	if p.TypesInfo.Types[call.Fun].IsBuiltin() { // make and close
		return false
	}
	for _, arg := range call.Args {
		t := p.TypesInfo.TypeOf(arg)
		if t == nil {
			continue
		}
		switch t.Underlying().(type) {
		case *types.Chan, *types.Signature:
			return true
		}
		if m, _, _ := types.LookupFieldOrMethod(t, true, p.Pkg, "Wait"); m != nil {
			return true
		}
	}
	return false
}

// inside reports whether n is part of one of the go statements.
func inside(n ast.Node, started []*ast.GoStmt) bool {
	return slices.ContainsFunc(started, func(g *ast.GoStmt) bool { return g.Pos() <= n.Pos() && n.End() <= g.End() })
}
