package main

import (
	"cmp"
	"errors"
	"os"
	"os/user"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/cmd/locker/internal/outcome"
	"github.com/go-locker/locker/cmd/locker/internal/run"
	"github.com/go-locker/locker/cmd/locker/internal/target"
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
again. It is free one TTL (30 s, or --at-least if longer) after COMMAND ends, or
earlier. Both together have to be less than the time between two runs.

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

func newRun() *cobra.Command {
	var o run.Options
	var heldCode int
	var quiet bool
	c := &cobra.Command{
		Use:               "run [flags] URL NAME -- COMMAND [ARGUMENT…]",
		SuggestFor:        []string{"lock", "exec"},
		Short:             "Run a command under a lock",
		Long:              runHelp,
		Example:           "  locker run --wait 10s etcd://localhost:2379 deploy -- ./deploy.sh production\n  LOCKER_URL=redis://:secret@db1:6379 locker run --no-wait - report -- report -m",
		ValidArgsFunction: schemesThenCommand,
		RunE: func(c *cobra.Command, args []string) error {
			given := c.Flags().Changed
			switch {
			case c.ArgsLenAtDash() != 2 || len(args) < 3:
				return outcome.Usagef("want URL NAME -- COMMAND, as in: locker run redis://localhost:6379 backup -- backup --all")
			case given("wait") && o.Wait <= 0:
				return outcome.Usagef("--wait %v: must be more than 0; use --no-wait not to wait at all", o.Wait)
			case o.NoWait && o.Wait > 0:
				return outcome.Usagef("--wait and --no-wait exclude each other")
			case given("n") && (o.Slots < 1 || o.Slots > mostSlots):
				return outcome.Usagef("-n %d: must be from 1 to %d", o.Slots, mostSlots)
			case o.Slots > 0 && o.Shared:
				return outcome.Usagef("-n and --shared exclude each other")
			case o.Slots > 0 && o.AtLeast > 0:
				return outcome.Usagef("-n and --at-least exclude each other: slots that a waiter gives back would stay taken")
			case given("at-least") && o.AtLeast <= 0:
				return outcome.Usagef("--at-least %v: must be more than 0", o.AtLeast)
			case heldCode < 0 || heldCode > 255:
				return outcome.Usagef("--held-exit-code %d: must be from 0 to 255", heldCode)
			}
			url, err := target.Expand(args[0])
			if err := cmp.Or(err, checkName(args[1])); err != nil {
				return err
			}
			if o.Metadata == "" {
				o.Metadata = whoami()
			}
			err = o.Run(c.Context(), url, args[1], args[2:])
			if _, ended := errors.AsType[*outcome.Error](err); ended || !errors.Is(err, locker.ErrHeld) {
				return err
			}
			if quiet {
				err = nil
			}
			return &outcome.Error{Code: heldCode, Err: err}
		},
	}
	f := c.Flags()
	f.DurationVar(&o.Wait, "wait", 0, "how long to wait, as in 10s (default: until a signal)")
	f.BoolVar(&o.NoWait, "no-wait", false, "do not wait if another holds the lock")
	f.DurationVar(&o.AtLeast, "at-least", 0, "keep the lock at least so long, also if COMMAND ends sooner, as in 1m")
	f.IntVar(&heldCode, "held-exit-code", outcome.Held, "exit code if another holds the lock")
	f.StringVar(&o.Metadata, "metadata", "", "what inspect shows as the holder; no secrets (default user@host pid N)")
	f.BoolVarP(&quiet, "quiet", "q", false, "print nothing if another holds the lock")
	f.BoolVarP(&o.Verbose, "verbose", "v", false, "print who holds the lock, and the place in the queue, while waiting")
	f.IntVarP(&o.Slots, "n", "n", 0, "how many may run at once (a semaphore)")
	f.BoolVar(&o.Shared, "shared", false, "share the lock with others that give --shared")
	return c
}

// mostSlots bounds -n: a waiter stands in the queue of each slot.
const mostSlots = 1000

// whoami returns the default metadata of a hold: user@host, and the process.
func whoami() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	name := cmp.Or(os.Getenv("USER"), os.Getenv("USERNAME"))
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return cmp.Or(name, "unknown") + "@" + host + " pid " + strconv.Itoa(os.Getpid())
}
