package lockervet

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
)

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
