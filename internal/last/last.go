// Package last has an Unlock of several holds end the contexts of all of them after the last
// release: it may have been called with one of these.
package last

import (
	"context"
	"sync"
)

// Carrier is the key under which a context has the innermost context of a hold that it derives from.
type Carrier struct{}

type key struct{}

// With returns a context for the Unlock of each hold, which looks at no hold's clock. Call do when
// all have returned: it ends the context. What an Observer does with that later waits for nobody.
func With(ctx context.Context) (own context.Context, do func()) {
	ctx, cancel := context.WithCancel(ctx)
	var mu sync.Mutex
	var waiting []func()
	var over bool
	later := func(f func()) {
		mu.Lock()
		now := over
		if !now {
			waiting = append(waiting, f)
		}
		mu.Unlock()
		if now {
			f()
		}
	}
	return context.WithValue(ctx, key{}, later), func() {
		mu.Lock()
		over = true
		mu.Unlock()
		for _, f := range waiting {
			f()
		}
		cancel()
	}
}

// Of returns what keeps a function for do, or nil if ctx is not from With.
func Of(ctx context.Context) (later func(func())) {
	later, _ = ctx.Value(key{}).(func(func()))
	return later
}
