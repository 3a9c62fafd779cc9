// Package child runs part of a test as a process of its own, which the test can stop: a test binary that starts itself
// again.
package child

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/go-locker/locker/internal/tb"
)

// nameEnv is the name of what a child is for, in its environment.
const nameEnv = "LOCKER_CHILD"

var registered = map[string]func(testing.TB){}

// Register gives f, which is what children do, a name for [Start]. It is called by functions called init.
func Register(name string, f func(testing.TB)) { registered[name] = f }

// Serve comes first in TestMain. In a child it does what that is for, and ends the process; else it returns. So children are no
// tests, and do not count as any.
func Serve() {
	name := os.Getenv(nameEnv)
	if name == "" {
		return
	}
	f, ok := registered[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "child: nothing is registered as %q\n", name)
		os.Exit(1)
	}
	t := &served{name: name, Scope: tb.New(context.Background(), func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, name+": "+format+"\n", args...)
	})}
	f(t)
	t.End()
	if t.failed {
		os.Exit(1)
	}
	os.Exit(0)
}

// served is the TB of a child, which has no more than what helpers of tests commonly call.
type served struct {
	unimplemented
	*tb.Scope

	name   string
	failed bool
}

// unimplemented has the methods of a TB that nobody calls.
type unimplemented struct{ testing.TB } // nil

func (t *served) Name() string { return t.name }

func (t *served) Errorf(format string, args ...any) {
	t.failed = true
	t.Logf(format, args...)
}

func (t *served) Error(args ...any) { t.Errorf("%s", fmt.Sprint(args...)) }

func (t *served) FailNow() { os.Exit(1) }

func (t *served) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	t.FailNow()
}

func (t *served) Fatal(args ...any) { t.Fatalf("%s", fmt.Sprint(args...)) }
