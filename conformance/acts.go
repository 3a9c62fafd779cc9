package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// idleFault is a fault that did nothing. It blames the Harness, and no deviation of the backend explains it.
type idleFault struct{ field, seen string }

// Error says what was done, and what was seen.
func (f *idleFault) Error() string {
	return fmt.Sprintf("your fault did nothing: Faults.%s: %s", f.field, f.seen)
}

// idle returns the error of a fault that did nothing.
func idle(field, format string, args ...any) error {
	return &idleFault{field, fmt.Sprintf(format, args...)}
}

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

// silence is a backend that is not to answer until it is over.
type silence struct {
	field  string
	broken chan struct{} // closed if it answered

	mu      sync.Mutex
	answers int
	began   bool // no answer came for a while
	late    int  // answers since then
	over    bool // the fault is undone
}

// answer counts one. The first after the silence began may have been on its way.
func (s *silence) answer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers++
	if s.began && !s.over {
		if s.late++; s.late == 2 {
			close(s.broken)
		}
	}
}

// begins reports whether no answer has come since there were so many, and how many there are.
func (s *silence) begins(answers int) (bool, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began = answers == s.answers
	return s.began, s.answers
}

// begin is for an error of the backend's.
func (s *silence) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began = true
}

// end comes before the fault is undone.
func (s *silence) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}

// idle returns an error if the backend has answered, or does so within d.
func (s *silence) idle(d time.Duration) error {
	s.mu.Lock()
	if s.over {
		d = 0
	}
	s.mu.Unlock()
	select {
	case <-s.broken:
	case <-time.After(d):
	}
	select { // both may have been ready
	case <-s.broken:
		return idle(s.field, "it had returned, and was not undone yet, and a Locker locks and unlocks")
	default:
		return nil
	}
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
			return idle(s.field, "%v after it returned, a Locker still locks and unlocks", took.Round(time.Millisecond))
		}
	}
}

// blame returns what a trial that has seen a breach is to say: if a backend answers that should be silent, that is the fault's.
func (e *env) blame(seen error) error {
	if _, known := errors.AsType[*idleFault](seen); known {
		return seen
	}
	if s := e.silence.Load(); s != nil {
		if err := s.idle(settle); err != nil {
			return &doubtful{err}
		}
	}
	return seen
}
