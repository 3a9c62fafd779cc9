package locktest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// faults are those of one Client, and its holds.
type faults struct {
	mu    sync.Mutex
	down  bool
	hang  chan struct{} // closed by up; nil: requests are answered
	delay time.Duration
	next  []error
	holds map[*claim]struct{} // granted, and not ended
}

func (f *faults) set(change func(*faults)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// up ends down and hang. The caller holds f.mu.
func (f *faults) up() {
	f.down = false
	if f.hang != nil {
		close(f.hang)
		f.hang = nil
	}
}

// request returns what becomes of a request: nil if it is to be carried out.
func (f *faults) request(ctx context.Context) error {
	f.mu.Lock()
	delay := f.delay
	var fails error
	if len(f.next) > 0 {
		fails, f.next = f.next[0], f.next[1:]
	}
	f.mu.Unlock()
	_ = clock.Sleep(ctx, delay)
	for {
		f.mu.Lock()
		hang, down := f.hang, f.down
		f.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case hang != nil:
			select {
			case <-hang:
			case <-ctx.Done():
			}
		case fails != nil:
			return fails
		case down:
			return ErrUnreachable
		default:
			return nil
		}
	}
}

// make makes a request, unless a fault prevents it.
func (f *faults) make(ctx context.Context, request func() error) error {
	if err := f.request(ctx); err != nil {
		return err
	}
	return request()
}

// lose tells the holds of name that have this token of their end.
func (f *faults) lose(name string, token uint64) {
	var lost []func()
	f.mu.Lock()
	for c := range f.holds {
		if c.name != name || c.Token() != token {
			continue
		}
		delete(f.holds, c)
		c.gone = true
		if c.lost != nil {
			lost = append(lost, c.lost)
		}
	}
	f.mu.Unlock()
	for _, tell := range lost {
		tell()
	}
}

// parting is how long an Unlock whose context has ended may go on in the background.
const parting = 100 * time.Millisecond

// leaks describes the holds that nobody has ended.
func (f *faults) leaks() (leaks []string) {
	for range 10 {
		leaks = leaks[:0]
		f.mu.Lock()
		for c := range f.holds {
			if left := c.Validity(); left > c.ttl/100+2*time.Millisecond { // the allowance for clocks
				leaks = append(leaks, c.leak())
			}
		}
		f.mu.Unlock()
		if len(leaks) == 0 {
			break
		}
		time.Sleep(parting / 10)
	}
	slices.Sort(leaks)
	return leaks
}

// faulty is the driver of a Client.
type faulty struct {
	driver.Driver
	driver.Operator

	faults *faults
	prefix string // of all names, from the first List
}

func (d *faulty) Claim(req driver.Request) driver.Claim {
	return &claim{Claim: d.Driver.Claim(req), faults: d.faults, name: req.Name, ttl: req.TTL, taken: caller()}
}

func (d *faulty) Inspect(ctx context.Context, name string) (state driver.State, err error) {
	err = d.faults.make(ctx, func() error { state, err = d.Operator.Inspect(ctx, name); return err })
	return state, err
}

func (d *faulty) List(prefix string) driver.Pager {
	if d.prefix == "" {
		d.prefix = prefix
	}
	list := d.Operator.List(prefix)
	return func(ctx context.Context) (page driver.Page, err error) {
		err = d.faults.make(ctx, func() error { page, err = list(ctx); return err })
		return page, err
	}
}

func (d *faulty) ForceRelease(ctx context.Context, name string, shown driver.State) error {
	return d.faults.make(ctx, func() error { return d.Operator.ForceRelease(ctx, name, shown) })
}

// claim is one whose requests meet the faults.
type claim struct {
	driver.Claim

	faults *faults
	name   string // with the prefix
	ttl    time.Duration
	taken  string // the line that took it, or empty
	asked  bool
	failed error // of FailNext, for the first request: the Client makes it again, and fails with it

	// Guarded by the mutex of faults.
	lost func()
	gone bool // by Lose
}

var _ interface {
	driver.Downgrader
	driver.LossNotifier
	driver.Leaver
} = (*claim)(nil)

func (c *claim) Ask(ctx context.Context) (time.Duration, error) {
	if c.failed != nil {
		return 0, c.failed
	}
	first := !c.asked
	c.asked = true
	if err := c.faults.request(ctx); err != nil {
		if first && ctx.Err() == nil && !errors.Is(err, ErrUnreachable) {
			c.failed = err
		}
		return 0, err
	}
	next, err := c.Claim.Ask(ctx)
	if err == nil {
		c.faults.set(func(f *faults) { f.holds[c] = struct{}{} })
	}
	return next, err
}

func (c *claim) Extend(ctx context.Context, ttl time.Duration) error {
	return c.faults.make(ctx, func() error { return c.Claim.Extend(ctx, ttl) })
}

func (c *claim) Downgrade(ctx context.Context) error {
	return c.faults.make(ctx, func() error { return c.Claim.(driver.Downgrader).Downgrade(ctx) })
}

func (c *claim) Release(ctx context.Context) error {
	c.Leave()
	return c.faults.make(ctx, func() error { return c.Claim.Release(ctx) })
}

// Leave notes that the hold has ended here, whatever becomes of it at the backend.
func (c *claim) Leave() { c.faults.set(func(f *faults) { delete(f.holds, c) }) }

func (c *claim) NotifyLost(f func()) {
	c.faults.mu.Lock()
	c.lost = f
	gone := c.gone
	c.faults.mu.Unlock()
	if gone {
		f()
	}
}

// leak describes a hold that nobody has ended.
func (c *claim) leak() string {
	_, name, _ := strings.Cut(c.name, ":")
	text := fmt.Sprintf("the lock %q is still held at the end of the test", name)
	if c.taken != "" {
		text += ", taken at " + c.taken
	}
	return text
}

// caller returns the file and line that called this library, or the empty string.
func caller() string {
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for more := true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		if frame.Function != "runtime.goexit" && !ours(frame.Function) {
			return fmt.Sprintf("%s:%d", frame.File, frame.Line)
		}
	}
	return ""
}

// ours reports whether a function is one of the library.
func ours(function string) bool {
	const module = "github.com/go-locker/locker"
	for _, p := range []string{".", "/locktest.", "/election.", "/semaphore.", "/multi.", "/keyed."} {
		if strings.HasPrefix(function, module+p) {
			return true
		}
	}
	return false
}
