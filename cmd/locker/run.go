package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/cmd/locker/internal/job"
	"github.com/go-locker/locker/internal/noanswer"
	"github.com/go-locker/locker/semaphore"
)

const runHelp = `Run waits until it holds the lock NAME, runs COMMAND, and unlocks when COMMAND
has ended, for whatever reason.

  0 3 * * *  locker run --no-wait redis://locks:6379 nightly -- backup --all

on ten machines runs backup on one of them. The environment of COMMAND has

  LOCKER_FENCING_TOKEN  a number, larger than that of every earlier run: the
                        resource to which COMMAND writes can refuse a smaller
                        one
  LOCKER_NAME           NAME
  LOCKER_SLOT           with -n N: a number from 0 to N-1 that no other run has

With -n N up to N runs hold the lock at once, each in one of N slots. All runs
have to give the same N. With --shared all runs that give --shared run at once,
and runs without it wait, as with flock -s. Redis, etcd and ZooKeeper have
shared locks; most other backends do not.

With --at-least 1m the lock stays taken for a minute from its grant on, also
if COMMAND ends sooner, succeeds or fails, and although run ends with it: a
machine whose clock is late finds the lock held, and does not run COMMAND
again. After that it is free one TTL after the end of COMMAND at the latest. So
give clearly less than the time between two runs.

The lock is renewed while COMMAND runs. If it cannot be renewed, COMMAND and
its descendants get SIGTERM when a quarter of the TTL is left, and SIGKILL
before the TTL is over. So they have ended before another can hold the lock. If
the backend reports that the lock is lost, they get SIGKILL at once.

On Linux these signals reach all descendants, also those in a process group or
session of their own, as under timeout(1). On other systems they reach only the
process group of COMMAND. They never reach processes of another user, or
processes that a service manager or a container engine starts for COMMAND. If
locker alone is stopped (SIGSTOP) or killed (SIGKILL), COMMAND may run without
the lock: see README.md.

SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are forwarded to COMMAND's
process group. Before COMMAND has started, they end run, which then leaves the
queue. When COMMAND ends by itself, its background processes run on without the
lock.

On Windows there is no SIGTERM. COMMAND and its descendants are a job, and run
ends the job where it uses SIGKILL on other systems.

` + exitHelp

type runOptions struct {
	wait     time.Duration
	noWait   bool
	heldCode int
	metadata string
	quiet    bool
	verbose  bool
	slots    int  // 0: not a semaphore
	shared   bool // a share of a read-write lock
	atLeast  time.Duration
}

func newRun() *cobra.Command {
	var o runOptions
	c := &cobra.Command{
		Use:               "run [flags] URL NAME -- COMMAND [ARGUMENT…]",
		SuggestFor:        []string{"lock", "exec"},
		Short:             "Run a command under a lock",
		Long:              runHelp,
		Example:           "  locker run --wait 10s etcd://localhost:2379 deploy -- ./deploy.sh production\n  LOCKER_URL=redis://:secret@db1:6379 locker run --no-wait - report -- report -m",
		ValidArgsFunction: schemesThenCommand,
		RunE: func(c *cobra.Command, args []string) error {
			if c.ArgsLenAtDash() != 2 || len(args) < 3 {
				return usagef("want URL NAME -- COMMAND, as in: locker run redis://localhost:6379 backup -- backup --all")
			}
			if c.Flags().Changed("wait") && o.wait <= 0 {
				return usagef("--wait %v: must be more than 0; use --no-wait not to wait at all", o.wait)
			}
			if o.noWait && o.wait > 0 {
				return usagef("--wait and --no-wait exclude each other")
			}
			if c.Flags().Changed("n") && (o.slots < 1 || o.slots > mostSlots) {
				return usagef("-n %d: must be from 1 to %d", o.slots, mostSlots)
			}
			if o.slots > 0 && o.shared {
				return usagef("-n and --shared exclude each other")
			}
			if o.slots > 0 && o.atLeast > 0 {
				return usagef("-n and --at-least exclude each other: slots that a waiter gives back would stay taken")
			}
			if c.Flags().Changed("at-least") && o.atLeast <= 0 {
				return usagef("--at-least %v: must be more than 0", o.atLeast)
			}
			if o.heldCode < 0 || o.heldCode > 255 {
				return usagef("--held-exit-code %d: must be from 0 to 255", o.heldCode)
			}
			return o.run(c.Context(), args[0], args[1], args[2:])
		},
	}
	f := c.Flags()
	f.DurationVar(&o.wait, "wait", 0, "how long to wait, as in 10s (default: until a signal)")
	f.BoolVar(&o.noWait, "no-wait", false, "do not wait if another holds the lock")
	f.DurationVar(&o.atLeast, "at-least", 0, "keep the lock at least so long, also if COMMAND ends sooner, as in 1m")
	f.IntVar(&o.heldCode, "held-exit-code", exitHeld, "exit code if another holds the lock")
	f.StringVar(&o.metadata, "metadata", "", "what inspect shows as the holder; no secrets (default user@host pid N)")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print nothing if another holds the lock")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "print who holds the lock, and the place in the queue, while waiting")
	f.IntVarP(&o.slots, "n", "n", 0, "how many may run at once (a semaphore)")
	f.BoolVar(&o.shared, "shared", false, "share the lock with others that give --shared")
	return c
}

// mostSlots bounds -n: a waiter stands in the queue of each slot.
const mostSlots = 1000

func (o *runOptions) run(ctx context.Context, url, name string, command []string) error {
	url, err := expandURL(url)
	if err != nil {
		return err
	}
	if err := checkName(name); err != nil {
		return err
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return cannotRun(command[0], err) // before anybody waits for it
	}
	if o.metadata == "" {
		o.metadata = whoami()
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
		return o.notHeld(err)
	}
	cmd := exec.Command(path, command[1:]...)
	cmd.Args[0] = command[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), fmt.Sprintf("LOCKER_FENCING_TOKEN=%d", t.hold.Token()), "LOCKER_NAME="+name)
	if o.slots > 0 {
		cmd.Env = append(cmd.Env, fmt.Sprintf("LOCKER_SLOT=%d", t.slot))
	}
	return unlock(t.hold, supervise(t.hold, cmd, signals))
}

// tenure is a hold and its Client. Each is nil if there is none.
type tenure struct {
	client *locker.Client
	hold   *locker.Hold
	slot   int // of a semaphore
}

// acquireUnless calls acquire. If a signal comes first, it returns the signal's error.
func (o *runOptions) acquireUnless(ctx context.Context, signals <-chan os.Signal, url, name string) (tenure, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		tenure
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		t, err := o.acquire(ctx, url, name)
		answers <- answer{t, err}
	}()
	select {
	case a := <-answers:
		return a.tenure, a.err
	case s := <-signals:
		cancel()
		a := <-answers
		if a.err == nil { // the lock came just then
			_ = giveBack(a.hold)
		}
		return a.tenure, killedBy(s)
	}
}

// acquire opens the URL and takes the lock. While the backend is unreachable it goes on until
// --wait is over.
func (o *runOptions) acquire(ctx context.Context, url, name string) (tenure, error) {
	if o.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.wait)
		defer cancel()
	}
	for {
		t, err := o.attempt(ctx, url, name)
		if err == nil || o.wait == 0 || ctx.Err() != nil || !noanswer.Outage(err) {
			return t, err
		}
		if o.verbose {
			fmt.Fprintf(os.Stderr, "locker: waiting: %v\n", err)
		}
		if t.client != nil {
			_ = t.client.Close()
		}
		select {
		case <-time.After(outagePause):
		case <-ctx.Done():
			return tenure{}, err
		}
	}
}

// outagePause is between two attempts at a backend that is unreachable.
const outagePause = 500 * time.Millisecond

// attempt opens the URL and takes the lock, once.
func (o *runOptions) attempt(ctx context.Context, url, name string) (t tenure, err error) {
	if t.client, err = open(ctx, url, locker.WithMetadata(o.metadata), toStderr()); err != nil {
		return t, err
	}
	if o.verbose && !o.noWait {
		w := newWaiting(t.client, name, o)
		defer w.end()
		go w.tell(ctx)
	}
	t.hold, t.slot, err = o.take(ctx, t.client, name)
	return t, err
}

// take takes the lock, a share of it, or a slot.
func (o *runOptions) take(ctx context.Context, c *locker.Client, name string) (_ *locker.Hold, slot int, err error) {
	var opts []locker.MutexOption
	if o.atLeast > 0 {
		opts = append(opts, locker.AtLeast(o.atLeast))
	}
	if o.slots > 0 {
		s := semaphore.New(c, name, o.slots, opts...)
		acquire := s.Acquire
		if o.noWait {
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
	}[o.noWait][o.shared]
	h, err := acquire(ctx)
	return h, 0, err
}

// notHeld returns the error of a failed attempt to lock. With --held-exit-code 0 ErrHeld is a success.
func (o *runOptions) notHeld(err error) error {
	if !errors.Is(err, locker.ErrHeld) {
		return err
	}
	if o.quiet {
		err = nil
	}
	return &statusError{code: o.heldCode, err: err}
}

// unlock ends the hold, and returns the error of run if the command has ended with result.
func unlock(h *locker.Hold, result error) error {
	err := giveBack(h)
	switch {
	case err == nil:
		return result
	case errors.Is(err, locker.ErrLost):
		if exitCode(result) == exitLost {
			return result // it has the reason
		}
		return &statusError{code: exitLost, err: fmt.Errorf("the command ended after the lock was lost: %w", err)}
	default:
		// The command's work is done: keep its exit code.
		fmt.Fprintf(os.Stderr, "locker: the lock is not released, and will expire: %v\n", err)
		return result
	}
}

// giveBack unlocks, also after a cancellation, while the hold lasts. Its context ends a little
// earlier than the hold: so an ErrLost means that the lock was lost, and not that the release was
// not answered.
func giveBack(h *locker.Hold) error {
	deadline := h.Deadline()
	ctx, cancel := context.WithDeadline(context.Background(), deadline.Add(-time.Until(deadline)/10))
	defer cancel()
	return h.Unlock(ctx)
}

// cannotRun returns the error of a command that does not start.
func cannotRun(command string, err error) error {
	command = shown(command, "the argument after --")
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return &statusError{code: exitNotFound, err: fmt.Errorf("%s: command not found", command)}
	}
	return &statusError{code: exitCannotRun, err: fmt.Errorf("%s: cannot be executed: %w", command, reason(err))}
}
