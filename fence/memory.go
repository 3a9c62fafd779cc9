package fence

import (
	"context"
	"sync"
)

// Memory is a Guard within one process. The zero value is ready to use, by several goroutines. Its
// memory ends with the process: if the resource outlives that, the newest token has to be kept with
// the resource, as the packages below this one do. A Memory keeps some 250 bytes, and the name, of
// each resource that it has seen.
type Memory struct {
	resources sync.Map // string → *turns
}

// turns lets one write at a time see and raise the newest token.
type turns struct {
	turn   chan struct{} // holds one element while a write is under way
	newest uint64
}

var _ Guard = (*Memory)(nil)

// Write implements [Guard]. If ctx ends while another write is under way, Write returns ctx's
// cause.
func (m *Memory) Write(ctx context.Context, resource string, token uint64, write func(context.Context) error) error {
	if err := Check(resource, token, 0); err != nil {
		return err
	}
	t := m.of(resource)
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-t.turn }()
	if err := Check(resource, token, t.newest); err != nil {
		return err
	}
	t.newest = token
	return write(ctx)
}

func (m *Memory) of(resource string) *turns {
	if t, found := m.resources.Load(resource); found {
		return t.(*turns)
	}
	t, _ := m.resources.LoadOrStore(resource, &turns{turn: make(chan struct{}, 1)})
	return t.(*turns)
}
