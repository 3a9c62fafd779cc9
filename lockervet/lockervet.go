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

// function returns the full name of the function or method that is called, as context.WithCancel or
// (*testing.common).Context.
func (p pass) function(call *ast.CallExpr) string {
	if f, ok := typeutil.Callee(p.TypesInfo, call).(*types.Func); ok {
		return f.FullName()
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
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	return ok && slices.Contains([]string{"context.Background", "context.TODO"}, p.function(call))
}

// isTestContext reports whether e is the Context of a test, which ends when the test has.
func (p pass) isTestContext(e ast.Expr) bool {
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok {
		return false
	}
	name := p.function(call)
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
