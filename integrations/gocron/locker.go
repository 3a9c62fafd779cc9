package gocron

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	cron "github.com/go-co-op/gocron/v2"

	"github.com/go-locker/locker"
)

// Locker makes a job run on one scheduler at a time. It implements [cron.Locker], for
// [cron.WithDistributedLocker]. Make one with [NewLocker]. Several schedulers may share it.
type Locker struct {
	client  *locker.Client
	minimum time.Duration
	onError func(error)
	opts    []locker.MutexOption

	mu      sync.Mutex
	granted []*grant // those that no run of Task has taken
}

var _ cron.Locker = (*Locker)(nil)

// NewLocker returns a Locker that keeps each lock for minimum from its grant on, and for as long as
// its job runs. The minimum has to be longer than the difference between the schedulers' clocks,
// and shorter than the time between two runs: within it nobody runs the job again, neither at its
// next tick nor by RunNow. The Locker takes two locks for a run. One has the minimum as its TTL,
// and expires by itself. The other is held and renewed until the job ends. The minimum does not
// become shorter if the process ends, or closes its Client. On etcd and ZooKeeper it may then
// become longer, up to twice as long. It has to be a TTL that the backend honours: on etcd whole
// seconds. If the backend does not answer within half the minimum, Lock fails.
//
// The options are those of the lock that is held and renewed until the job ends.
//
// onError is called with the errors that gocron drops. One is the error of an Unlock, which is
// [locker.ErrLost] if the lock was lost before the job ended. The other is the error of a Lock,
// unless another scheduler has the lock, or the job is stopped. Without onError, an unreachable
// backend would look like jobs that others run. Several goroutines may call onError.
func NewLocker(c *locker.Client, minimum time.Duration, onError func(error), opts ...locker.MutexOption) (*Locker, error) {
	if minimum <= 0 {
		return nil, fmt.Errorf("gocron: a minimum hold of %v: must be above 0: longer than the clocks of the schedulers differ, "+
			"for a job that takes less would run again, and shorter than the time between two runs", minimum)
	}
	if onError == nil {
		return nil, errors.New("gocron: onError is nil: gocron drops errors, so somebody else has to hear of them")
	}
	l := &Locker{client: c, minimum: minimum, onError: onError, opts: opts}
	if err := validate(c.Mutex("job", opts...)); err != nil {
		return nil, fmt.Errorf("gocron: the options of the lock: %w", err)
	}
	if err := validate(l.minimumOf("job")); err != nil {
		return nil, fmt.Errorf("gocron: a minimum hold of %v: %w", minimum, err)
	}
	return l, nil
}

// validate returns what is wrong with a Mutex that nobody has locked: one that is not valid has one error for whatever is asked. It makes no request.
func validate(m *locker.Mutex) error {
	if err := m.Extend(context.Background()); !errors.Is(err, locker.ErrNotHeld) {
		return err
	}
	return nil
}

// minimumOf returns the lock that is left to expire when the minimum is over. It is another than the one that the job holds: a lock that is renewed
// while the job runs would expire too late if the job ended soon after that.
func (l *Locker) minimumOf(job string) *locker.Mutex {
	opts := append(slices.Clone(l.opts), locker.WithTTL(l.minimum), locker.WithoutRenewal())
	return l.client.Mutex(job+" (minimum hold)", opts...)
}

// Lock implements [cron.Locker]. It does not wait: it returns an error that matches locker.ErrHeld
// if another scheduler runs the job, or has done so within the minimum.
func (l *Locker) Lock(ctx context.Context, job string) (cron.Lock, error) {
	h, err := l.acquire(ctx, job)
	if err != nil {
		if !errors.Is(err, locker.ErrHeld) && ctx.Err() == nil { // else the job is stopped
			l.onError(err)
		}
		return nil, err
	}
	_, returned := h.Context(context.Background(), 0) // Close waits for the job, too
	g := &grant{l, ctx, h, returned}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.granted = append(l.granted, g)
	return g, nil
}

func (l *Locker) acquire(ctx context.Context, job string) (*locker.Hold, error) {
	if job == unnamed {
		return nil, errUnnamed
	}
	minimum, err := l.begin(ctx, job)
	if err != nil {
		return nil, err
	}
	h, err := l.client.Mutex(job, l.opts...).TryAcquire(ctx)
	if err != nil {
		l.tell(minimum.Unlock(context.WithoutCancel(ctx)))
		return nil, err
	}
	// From here on the minimum needs nobody. If it is over already, as the second request took so long, then the clocks of others
	// have reached the tick meanwhile, and found it held.
	_ = minimum.Abandon()
	return h, nil
}

// begin begins the minimum. On a session that exists already (etcd, ZooKeeper) a hold may begin with half its TTL: then it is extended.
func (l *Locker) begin(ctx context.Context, job string) (*locker.Hold, error) {
	began := time.Now()
	h, err := l.minimumOf(job).TryAcquire(ctx)
	if err != nil {
		return nil, err
	}
	const allowance, rest = 100, 5 * time.Millisecond // the Client takes off TTL/100 and 2 ms
	if enough := began.Add(l.minimum - l.minimum/allowance - rest); h.Deadline().Before(enough) {
		if err := h.Extend(ctx); err != nil {
			l.tell(h.Unlock(context.WithoutCancel(ctx)))
			return nil, err
		}
	}
	return h, nil
}

func (l *Locker) tell(err error) {
	if err != nil {
		l.onError(err)
	}
}

// grant implements [cron.Lock].
type grant struct {
	locker *Locker
	ctx    context.Context // of the job
	hold   *locker.Hold

	returned context.CancelFunc // the job has
}

// Unlock implements [cron.Lock].
func (g *grant) Unlock(ctx context.Context) error {
	g.locker.take(func(other *grant) bool { return other == g })
	err := g.hold.Unlock(context.WithoutCancel(ctx))
	g.returned()
	g.locker.tell(err)
	return err
}

// take removes and returns the first grant that is wanted, of those that no run has taken, or nil.
func (l *Locker) take(wanted func(*grant) bool) *grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.granted, wanted)
	if i < 0 {
		return nil
	}
	g := l.granted[i]
	l.granted = slices.Delete(l.granted, i, i+1)
	return g
}
