// Package run runs a command under a lock, and ends it before another can hold the lock.
package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/cmd/locker/internal/job"
	"github.com/go-locker/locker/cmd/locker/internal/outcome"
	"github.com/go-locker/locker/cmd/locker/internal/secret"
	"github.com/go-locker/locker/cmd/locker/internal/target"
	"github.com/go-locker/locker/internal/noanswer"
	"github.com/go-locker/locker/semaphore"
)

// Options say how the lock is taken.
type Options struct {
	Wait     time.Duration // 0: until a signal
	NoWait   bool
	Metadata string
	Verbose  bool // prints the present holder to stderr while it waits
	Slots    int  // 0: not a semaphore
	Shared   bool // a share of a read-write lock
	AtLeast  time.Duration
}

// Run runs a command under the lock, with our standard input and output, and returns its outcome.
// If the lock is not granted, the error is package locker's.
func (o *Options) Run(ctx context.Context, url, name string, command []string) error {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return cannotRun(command[0], err) // before anybody waits for it
	}
	signals := make(chan os.Signal, 16)
	job.Forward(signals)
	defer signal.Stop(signals)
	// If nobody reads our stderr any more we must not die, and leave the command without its lock.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	t, err := o.acquireUnless(ctx, signals, url, name)
	if t.client != nil {
		defer func() { _ = t.client.Close() }()
	}
	if err != nil {
		return err
	}
	cmd := exec.Command(path, command[1:]...)
	cmd.Args[0] = command[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), fmt.Sprintf("LOCKER_FENCING_TOKEN=%d", t.hold.Token()), "LOCKER_NAME="+name)
	if o.Slots > 0 {
		cmd.Env = append(cmd.Env, fmt.Sprintf("LOCKER_SLOT=%d", t.slot))
	}
	return unlock(t.hold, supervise(t.hold, cmd, signals), signals)
}

// acquired is a hold and its Client. Each is nil if there is none.
type acquired struct {
	client *locker.Client
	hold   *locker.Hold
	slot   int // of a semaphore
}

// acquireUnless calls acquire. If a signal comes first, it returns the signal's error.
func (o *Options) acquireUnless(ctx context.Context, signals chan os.Signal, url, name string) (acquired, error) {
	ctx, stop := job.Interruptible(ctx, signals, 0)
	t, err := o.acquire(ctx, url, name)
	killed := stop()
	if killed != nil && err == nil { // the lock came just then
		_ = giveBack(t.hold, signals)
	}
	return t, cmp.Or(killed, err)
}

// acquire opens the URL and takes the lock. While the backend is unreachable it goes on until
// --wait is over.
func (o *Options) acquire(ctx context.Context, url, name string) (acquired, error) {
	if o.Wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Wait)
		defer cancel()
	}
	var outage error // in which the attempt before has failed
	for {
		t, err := o.attempt(ctx, url, name)
		switch {
		case err == nil || errors.Is(err, locker.ErrHeld):
			return t, err
		case ctx.Err() != nil && outage != nil: // it was cut short, and perhaps does not know why
			return t, fmt.Errorf("%w; before that: %w", err, outage)
		case o.Wait == 0 || ctx.Err() != nil || !noanswer.Outage(err):
			return t, err
		}
		outage = err
		if o.Verbose {
			fmt.Fprintf(os.Stderr, "locker: waiting: %v\n", err)
		}
		if t.client != nil {
			_ = t.client.Close()
		}
		select {
		case <-time.After(outagePause):
		case <-ctx.Done():
			return acquired{}, err
		}
	}
}

// outagePause is between two attempts at a backend that is unreachable.
const outagePause = 500 * time.Millisecond

// logged tells on stderr what no call returns: why a hold was lost, and renewals that failed.
var logged = locker.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil)))

// attempt opens the URL and takes the lock, once.
func (o *Options) attempt(ctx context.Context, url, name string) (t acquired, err error) {
	if t.client, err = target.Open(ctx, url, locker.WithMetadata(o.Metadata), logged); err != nil {
		return t, err
	}
	if o.Verbose && !o.NoWait {
		var telling sync.WaitGroup
		defer telling.Wait()
		waits, granted := context.WithCancel(ctx)
		defer granted()
		telling.Go(func() { newWaiting(t.client, name, o).tell(waits) })
	}
	t.hold, t.slot, err = o.take(ctx, t.client, name)
	return t, err
}

// take takes the lock, a share of it, or a slot.
func (o *Options) take(ctx context.Context, c *locker.Client, name string) (_ *locker.Hold, slot int, err error) {
	var opts []locker.MutexOption
	if o.AtLeast > 0 {
		opts = append(opts, locker.AtLeast(o.AtLeast))
	}
	if o.Slots > 0 {
		s := semaphore.New(c, name, o.Slots, opts...)
		acquire := s.Acquire
		if o.NoWait {
			acquire = s.TryAcquire
		}
		p, err := acquire(ctx)
		if err != nil {
			return nil, 0, err
		}
		return p.Hold(), p.Slot(), nil
	}
	m := c.RWMutex(name, opts...)
	acquire := map[bool]map[bool]func(context.Context) (*locker.Hold, error){
		false: {false: m.Acquire, true: m.RAcquire},
		true:  {false: m.TryAcquire, true: m.TryRAcquire},
	}[o.NoWait][o.Shared]
	h, err := acquire(ctx)
	return h, 0, err
}

// unlock ends the hold, and returns the error of run if the command has ended with result.
func unlock(h *locker.Hold, result error, signals chan os.Signal) error {
	err := giveBack(h, signals)
	switch {
	case err == nil:
		return result
	case errors.Is(err, locker.ErrLost):
		if o, ok := errors.AsType[*outcome.Error](result); ok && o.Err != nil && o.Code == outcome.Lost {
			return result // it has the reason
		}
		return outcome.Errorf(outcome.Lost, "the command ended after the lock was lost: %w", err)
	default:
		// The command's work is done: keep its exit code.
		fmt.Fprintf(os.Stderr, "locker: the lock is not released, and will expire: %v\n", err)
		return result
	}
}

// giveBack unlocks, also after a cancellation, while the hold lasts. Its context ends a little
// earlier than the hold: so an ErrLost means that the lock was lost, and not that the release was
// not answered. A signal that comes meanwhile may be the one that has ended the command, too, so the
// server has a moment to answer.
func giveBack(h *locker.Hold, signals chan os.Signal) error {
	deadline := h.Deadline()
	ctx, cancel := context.WithDeadline(context.Background(), deadline.Add(-time.Until(deadline)/10))
	defer cancel()
	ctx, stop := job.Interruptible(ctx, signals, 2*time.Second)
	defer func() { _ = stop() }()
	return h.Unlock(ctx)
}

// cannotRun returns the error of a command that does not start.
func cannotRun(command string, err error) error {
	command = secret.Shown(command, "the argument after --")
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return outcome.Errorf(outcome.NotFound, "%s: command not found", command)
	}
	return outcome.Errorf(outcome.CannotRun, "%s: cannot be executed: %w", command, secret.Reason(err))
}
