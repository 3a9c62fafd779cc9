package lockervet

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/ast/inspector"
)

// limits make a context that may end before its function does.
var limits = []string{
	"context.WithCancel", "context.WithCancelCause", "context.WithDeadline", "context.WithDeadlineCause",
	"context.WithTimeout", "context.WithTimeoutCause", "os/signal.NotifyContext",
}

// tells is what the error of a method says.
var tells = map[string]string{
	"Unlock": "if the lock was lost before",
	"Lock":   "if the lock is held", "TryLock": "if the lock is held",
	"RLock": "if the lock is held", "TryRLock": "if the lock is held",
	"Do": "if the function ran, and to the end under the lock", "TryDo": "if the function ran, and to the end under the lock",
	"RDo": "if the function ran, and to the end under the lock", "TryRDo": "if the function ran, and to the end under the lock",
}

// checkUnlock looks at a call that takes a lock, or ends a hold.
func (p pass) checkUnlock(c inspector.Cursor, call *ast.CallExpr) {
	name, receiver := p.method(call)
	if made, ok := ast.Unparen(receiver).(*ast.CallExpr); ok && name == "Unlock" && !p.isTest(call) { // a test may want the error
		if maker, _ := p.method(made); maker == "Mutex" || maker == "RWMutex" {
			p.Reportf(call.Pos(), "Unlock of a Mutex that was just made and holds nothing: keep the Mutex that was locked, and unlock that")
			return
		}
	}
	p.checkDropped(c, call, tells[name])
	p.checkDroppedHold(c, call, name)
	if name == "Unlock" && len(call.Args) > 0 {
		p.checkEnded(c, call)
	}
}

// checkDropped reports a call whose error nobody looks at, if that says something.
func (p pass) checkDropped(c inspector.Cursor, call *ast.CallExpr, says string) {
	dropped := false
	switch s := c.Parent().Node().(type) {
	case *ast.ExprStmt, *ast.GoStmt:
		dropped = true
	case *ast.DeferStmt:
		dropped = s.Call == call
	}
	if dropped && says != "" {
		p.Reportf(call.Pos(), "the error of %s is dropped: it says %s; assign it to _ if that does not matter", types.ExprString(call.Fun), says)
	}
}

// checkDroppedHold reports an Acquire or the like whose hold nobody keeps: it is renewed until the
// Client is closed. A test may want the error alone.
func (p pass) checkDroppedHold(c inspector.Cursor, call *ast.CallExpr, name string) {
	if !strings.HasSuffix(strings.ToLower(name), "acquire") || p.isTest(call) {
		return
	}
	switch s := c.Parent().Node().(type) {
	case *ast.AssignStmt:
		if id, ok := s.Lhs[0].(*ast.Ident); !ok || id.Name != "_" {
			return
		}
	case *ast.ExprStmt, *ast.GoStmt, *ast.DeferStmt:
	default:
		return
	}
	p.Reportf(call.Pos(), "the hold of %s is dropped: nobody can unlock it, and it lasts until the Client is closed, or for a TTL if it is not renewed", types.ExprString(call.Fun))
}

// checkEnded reports an Unlock that runs when its function returns, or a test has ended, with a
// context that may have ended by then.
func (p pass) checkEnded(c inspector.Cursor, call *ast.CallExpr) {
	ctx := call.Args[0]
	late, cleanup := p.runsLate(c)
	switch {
	case cleanup && p.isTestContext(ctx):
		p.Reportf(ctx.Pos(), "%s has ended when a Cleanup runs: pass context.WithoutCancel of it", types.ExprString(ctx))
	case late != nil && p.isLimited(late, ctx):
		p.Reportf(ctx.Pos(), "%s may have ended when this runs, and then nobody learns whether the lock was held to the end: pass context.WithoutCancel of it",
			types.ExprString(ctx))
	}
}

// runsLate returns the body of the function at whose end the call at c runs, or nil if it is not
// deferred, and whether it runs in the Cleanup of a test.
func (p pass) runsLate(c inspector.Cursor) (late *ast.BlockStmt, cleanup bool) {
	deferred := false
	for c := range c.Enclosing((*ast.DeferStmt)(nil), (*ast.CallExpr)(nil), (*ast.FuncLit)(nil), (*ast.FuncDecl)(nil)) {
		switch n := c.Node().(type) {
		case *ast.CallExpr:
			if name := p.function(n); name == "(*testing.common).Cleanup" || name == "(testing.TB).Cleanup" {
				return nil, true
			}
		case *ast.DeferStmt:
			deferred = true
		case *ast.FuncLit:
			if deferred {
				return n.Body, false
			}
		case *ast.FuncDecl:
			if deferred {
				return n.Body, false
			}
		}
	}
	return nil, false
}

// isLimited reports whether ctx is a variable that body assigns a context to which may end, and
// nothing else.
func (p pass) isLimited(body *ast.BlockStmt, ctx ast.Expr) bool {
	obj := p.object(ctx)
	if obj == nil {
		return false
	}
	limited := false
	for n := range ast.Preorder(body) {
		assign, ok := n.(*ast.AssignStmt)
		if !ok || !slices.ContainsFunc(assign.Lhs, func(e ast.Expr) bool { return p.object(e) == obj }) {
			continue
		}
		if !slices.Contains(limits, p.function(assign.Rhs[0])) {
			return false
		}
		limited = true
	}
	return limited
}

// checkReturns looks, in one list of statements, for a Lock or TryLock, and for an Acquire or
// TryAcquire. Tests are left alone: the Client of one ends with it.
func (p pass) checkReturns(list []ast.Stmt) {
	for i, s := range list {
		rest := list[i+1:]
		if branch, ok := s.(*ast.IfStmt); ok && branch.Init != nil {
			lock, failed := p.locks(branch.Init)
			switch {
			case p.succeeds(branch.Cond, failed):
				p.checkHeld(lock, branch.Body.List)
			case branch.Else == nil && !inBranch(branch.Cond):
				p.checkHeld(lock, rest)
			}
			continue
		}
		lock, failed := p.locks(s)
		// Up to the statements that look at the error, nobody knows whether the lock is held.
		for failed != nil && len(rest) > 0 && !p.looks(rest[0], failed) {
			if branch, ok := rest[0].(*ast.IfStmt); ok && branch.Init == nil && p.succeeds(branch.Cond, failed) {
				rest, failed = branch.Body.List, nil
				break
			}
			rest = rest[1:]
		}
		for failed != nil && len(rest) > 0 && p.looks(rest[0], failed) {
			rest = rest[1:]
		}
		p.checkHeld(lock, rest)
	}
}

// checkHeld reports the Unlock of lock, which is held where list begins, if it is not deferred and a
// statement before it may return without one.
func (p pass) checkHeld(lock ast.Expr, list []ast.Stmt) {
	if lock == nil || p.isTest(lock) {
		return
	}
	var leak *ast.ReturnStmt
	for _, next := range list {
		if unlock := p.unlocks(next, lock); unlock != nil {
			if leak != nil && p.plain(next, unlock) {
				p.Reportf(unlock.Pos(), "%s is not deferred: the return at line %d leaves the lock taken",
					types.ExprString(unlock.Fun), p.Fset.Position(leak.Pos()).Line)
			}
			return
		}
		if leak == nil {
			leak = p.leaves(next, p.object(lock))
		}
	}
}

// looks reports whether s branches by the error failed, and the lock is held after it if at all.
func (p pass) looks(s ast.Stmt, failed types.Object) bool {
	switch s := s.(type) {
	case *ast.IfStmt:
		return s.Init == nil && p.uses(s.Cond, failed) && !inBranch(s.Cond)
	case *ast.SwitchStmt:
		return s.Init == nil && p.uses(s, failed)
	default:
		return false
	}
}

// succeeds reports whether cond is failed == nil.
func (p pass) succeeds(cond ast.Expr, failed types.Object) bool {
	b, ok := ast.Unparen(cond).(*ast.BinaryExpr)
	return ok && failed != nil && b.Op == token.EQL && p.object(b.X) == failed && p.TypesInfo.Types[b.Y].IsNil()
}

// inBranch reports whether the lock is held in the branch of cond alone, as with err == nil, or not
// at all after it, as with !errors.Is(err, locker.ErrHeld).
func inBranch(cond ast.Expr) bool {
	switch cond := ast.Unparen(cond).(type) {
	case *ast.BinaryExpr:
		return cond.Op == token.EQL
	case *ast.UnaryExpr:
		return cond.Op == token.NOT
	default:
		return false
	}
}

// locks returns the lock that s takes: the receiver of Lock, TryLock, RLock or TryRLock, or the hold
// that Acquire and the like return. It also returns the variable that has the error.
func (p pass) locks(s ast.Stmt) (lock ast.Expr, failed types.Object) {
	assign, ok := s.(*ast.AssignStmt)
	if !ok || len(assign.Rhs) != 1 {
		return nil, nil
	}
	call, ok := assign.Rhs[0].(*ast.CallExpr)
	if !ok || len(call.Args) != 1 { // those of keyed have a name, too
		return nil, nil
	}
	failed = p.object(assign.Lhs[len(assign.Lhs)-1])
	switch name, receiver := p.method(call); name {
	case "Lock", "TryLock", "RLock", "TryRLock":
		return receiver, failed
	case "Acquire", "TryAcquire", "RAcquire", "TryRAcquire":
		if p.object(assign.Lhs[0]) != nil {
			return assign.Lhs[0], failed
		}
	}
	return nil, nil
}

// unlocks returns the call in s, also in a function literal of it, that unlocks lock.
func (p pass) unlocks(s ast.Stmt, lock ast.Expr) *ast.CallExpr {
	for n := range ast.Preorder(s) {
		if call, ok := n.(*ast.CallExpr); ok {
			if name, receiver := p.method(call); name == "Unlock" && p.same(receiver, lock) {
				return call
			}
		}
	}
	return nil
}

// plain reports whether s makes the call itself: in no branch, and in no function literal.
func (p pass) plain(s ast.Stmt, call *ast.CallExpr) bool {
	switch s := s.(type) {
	case *ast.ExprStmt:
		return s.X == call
	case *ast.AssignStmt:
		return len(s.Rhs) == 1 && s.Rhs[0] == call
	case *ast.ReturnStmt:
		return len(s.Results) > 0 && s.Results[len(s.Results)-1] == call
	case *ast.IfStmt:
		return s.Init != nil && p.plain(s.Init, call)
	default:
		return false
	}
}

// leaves returns a return statement in s that does not hand held on, outside of function literals, or
// nil.
func (p pass) leaves(s ast.Stmt, held types.Object) (found *ast.ReturnStmt) {
	ast.Inspect(s, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ReturnStmt:
			if !p.uses(n, held) {
				found = n
			}
		case *ast.FuncLit:
			return false
		}
		return found == nil
	})
	return found
}
