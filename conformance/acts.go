package conformance

import (
	"context"
	"sync"
	"time"

	"github.com/go-locker/locker/conformance/internal/engine"
)

// relies ends the trial, in doubt, if err is that of a fault which did nothing.
func (e *env) relies(err error) {
	if err != nil {
		e.doubtf("%w", err)
	}
}

// certainly ends the scenario if err is that of a fault which did nothing.
func (e *env) certainly(err error) {
	if err != nil {
		e.failf("%w", err)
	}
}

// probe is a Locker that finds out whether a backend answers. It is made before the fault, for New may need the backend.
type probe struct {
	*party
	limit time.Duration // a backend that says nothing for so long is silent, unless the machine pauses
}

// probe has a name of its own, and tries how long an answer takes.
func (e *env) probe() *probe {
	p := &probe{party: e.party("a probe", e.name(), e.long)}
	start := time.Now()
	p.take()
	_ = p.unlock()
	p.limit = min(max(5*time.Since(start), settle), e.ttl/3) // holds of one TTL are to outlast it
	return p
}

// round locks and unlocks. Lock alone is not enough: a broken Locker may take an error for a success.
func (p *probe) round(ctx context.Context) error {
	const never = time.Hour
	err := p.call("Lock", never, func() error { return p.l.Lock(ctx) })
	if err == nil {
		err = p.call("Unlock", never, func() error { return p.l.Unlock(ctx) })
	}
	return err
}

// hush causes a fault of the servers, and returns when the backend is silent. From then on it is asked until undo is called, or the trial ends.
func (e *env) hush(field string, fault func(TB) (undo func())) (s *silence, undo func(), err error) {
	p := e.probe()
	ctx, cancel := context.WithCancel(e.Context())
	s = &silence{field: field, broken: make(chan struct{})}
	undo = e.harm(func(t TB) func() {
		mend := fault(t)
		return func() {
			s.end()
			cancel()
			mend()
		}
	})
	e.silence.Store(s)
	return s, undo, p.silent(ctx, s)
}

// silent waits until the backend answers nothing. A fault may act a moment after it has returned, as SIGSTOP does.
func (p *probe) silent(ctx context.Context, s *silence) error {
	refused := make(chan struct{})
	p.env.spawn(func() {
		refuse := sync.OnceFunc(func() { close(refused) })
		for ; ctx.Err() == nil; time.Sleep(settle / 20) {
			if p.round(ctx) == nil {
				s.answer()
				continue
			}
			s.begin()
			refuse()
		}
	})
	start := time.Now()
	for silent, answers := false, 0; ; {
		select {
		case <-refused:
			return nil
		case <-time.After(p.limit):
		}
		if silent, answers = s.begins(answers); silent {
			return nil
		}
		if took := time.Since(start); took > p.env.prompt {
			return engine.Idle(s.field, "%v after it returned, a Locker still locks and unlocks", took.Round(time.Millisecond))
		}
	}
}

// harm is a fault that lasts until undo is called, or the trial ends.
func (e *env) harm(fault func(TB) (undo func())) (undo func()) {
	mend := fault(e)
	var once sync.Once // and no OnceFunc: that panics where mend calls Fatalf
	undo = func() { once.Do(mend) }
	e.Cleanup(undo)
	return undo
}
