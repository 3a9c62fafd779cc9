package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-locker/locker/cmd/locker/internal/check"
	"github.com/go-locker/locker/cmd/locker/internal/outcome"
	"github.com/go-locker/locker/cmd/locker/internal/secret"
	"github.com/go-locker/locker/cmd/locker/internal/target"
	histories "github.com/go-locker/locker/internal/history"
	"github.com/go-locker/locker/internal/stdio"
)

const checkHelp = `Check runs the conformance scenarios of locker with the locks of a server, and
reports for each promise whether it was kept.

It is safe on a server that others use. It takes only its own locks, under its
own prefix. It cuts and delays only its own connections, and stops only its own
processes, never the server. Scenarios that need servers to be stopped, crashed
or wiped are skipped; the tests of locker run them on servers of their own.

It is a small load: --clients bounds how many clients there are at once, and
the report says how many connections each has.

It warns of server settings that can break a promise, such as a
maxmemory-policy of Redis that evicts locks, a Redis that forgets locks when it
restarts, or sentinels that begin a failover later than a TTL allows. For this
the user needs the right to INFO and SENTINEL MASTER. A warning does not make
the check fail. With --strict it does (exit code 1), and so does a promise that
was kept in some trials only.

If the user may only use keys with a certain prefix, give it with --prefix. Then
each name has a random part, and other locks are neither taken nor deleted.

With --exec, check judges the lock of a program in any language. The program
reads and writes lines of JSON on its standard input and output, as specified
in docs/evidence/judge-any-language.md. It finds its server in the environment
variable LOCKER_ADDRESS. --trace tries the program, and shows what is sent and
answered.
With --address, scenarios can put a proxy before the server. With --server, the
check starts the server, and stops and kills it. Scenarios that need a flag
that is missing, or something that the program does not claim, are printed as
skipped, with the reason.

--known names a file of promises that this lock is known to break. Each line is
the name of a scenario, a colon, and the reason. A listed promise that is broken
does not make the check fail. A listed promise that is kept does, so that the
file stays true.

A seed decides the calls and faults of a random history, and a failure names
the seed: --seed runs the same calls and faults again. If a history shows a
broken promise, it is saved as a file: --replay FILE judges it again, without
servers, and draws it (docs/evidence/histories.md).

The check takes one to four minutes with the default TTLs, longer with longer
ones, and waits most of that time. Ctrl-C ends it, and leaves nothing locked.

Afterwards nothing is left of the check, even if it was interrupted. On Redis
it deletes its keys, and reports it if it may not (DEL). With --prefix, the key
that makes tokens rise stays, because other locks may need it. In PostgreSQL
and MySQL the check makes a table of its own, and drops it, if the user has
these rights. ZooKeeper removes empty containers itself, once a minute. On S3
and SQLite the objects and rows of the locks stay for a while.

` + exitHelp

type checkOptions struct {
	check.Options
	strict bool
	output string
}

// flags defines the flags that check and compare share.
func (o *checkOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.Run, "run", "", "only scenarios whose name matches this regular expression")
	f.DurationVar(&o.TTL, "ttl", 0, "shortest TTL (default 500ms; MySQL and PostgreSQL 1s; etcd and Kubernetes 2s; S3 3s; ZooKeeper 4s)")
	f.BoolVar(&o.strict, "strict", false, "also fail for warnings, and for promises kept in some trials only")
	f.StringVar(&o.Prefix, "prefix", "", "prefix of the names (default: a new one)")
	f.IntVar(&o.Clients, "clients", 12, "maximum of clients at once, 11 or more; each has a few connections")
}

func newCheck() *cobra.Command {
	var (
		o     checkOptions
		seed  uint64
		file  string
		trace bool
	)
	c := &cobra.Command{
		Use:               "check [flags] URL | check [flags] --exec COMMAND | check --replay FILE",
		Short:             "Find out which promises the locks of a server, or program, keep",
		Long:              checkHelp,
		Example:           "  locker check redis://localhost:6379\n  locker check --run 'token|fenc' --output json - > verdicts.json\n  locker check --output junit etcd://h1:2379,h2:2379,h3:2379 > junit.xml\n  locker check --exec 'python3 lock.py' --address localhost:6379",
		Args:              args(0, 1, "want one URL, as in: locker check redis://localhost:6379"),
		ValidArgsFunction: schemes,
		RunE: func(c *cobra.Command, args []string) error {
			if file != "" {
				return replay(os.Stdout, file)
			}
			if err := cmp.Or(format(o.output, "text", "json", "junit"), validProgram(o.Program, trace, len(args))); err != nil {
				return err
			}
			if err := flag.Set("conformance.seed", strconv.FormatUint(seed, 10)); err != nil {
				return err
			}
			return interruptible(c, func(ctx context.Context) error {
				if trace && o.Run == "" {
					o.Program.Trace = os.Stdout
					if err := check.Try(ctx, &o.Options); err != nil {
						return err
					}
					_, err := fmt.Println("the program keeps to the protocol; to judge its lock, leave out --trace")
					return err
				}
				if trace {
					o.Program.Trace = os.Stderr
				}
				report, err := o.check(ctx, strings.Join(args, ""))
				if report == nil {
					return err
				}
				written := writeReport(os.Stdout, report, o.output) // whatever ended the check
				return cmp.Or(err, report.Verdict(o.strict), written)
			})
		},
	}
	f := c.Flags()
	o.flags(f)
	f.StringVar(&o.Program.Exec, "exec", "", "check the lock of this program, a `command` of the shell")
	f.StringVar(&o.Program.Address, "address", "", "`host:port` of the program's server, or several with commas")
	f.StringVar(&o.Program.Server, "server", "", "a `command` that starts that server, to be stopped and killed")
	f.BoolVar(&o.Program.Forgets, "server-forgets", false, "the server may lose its data when it is killed")
	f.BoolVar(&trace, "trace", false,
		"only try the program, and show what is sent and answered; with --run, check these scenarios and show it")
	f.StringVar(&o.Known, "known", "", "a `file` of known deviations, one a line: name of the scenario: reason")
	f.DurationVar(&o.Limit, "limit", 0, "how long the check may take in all; scenarios that did not run are counted (default: no limit)")
	f.Uint64Var(&seed, "seed", 0, "seed of random histories, to run the same calls and faults again; 0: a new seed each time")
	f.StringVar(&file, "replay", "", "only judge the history in this `file`, and draw it")
	f.StringVarP(&o.output, "output", "o", "text", "text, json or junit")
	return c
}

// validProgram returns an error unless there is either a URL or a program.
func validProgram(p check.Program, trace bool, urls int) error {
	if p.Exec == "" {
		if p != (check.Program{}) || trace {
			return outcome.Usagef("--address, --server, --server-forgets and --trace are for --exec")
		}
		if urls == 0 {
			return outcome.Usagef("want one URL, as in: locker check redis://localhost:6379; or a program, with --exec")
		}
		return nil
	}
	switch {
	case urls > 0:
		return outcome.Usagef("--exec takes the place of a URL")
	case p.Server != "" && p.Address == "":
		return outcome.Usagef("--server needs --address: where the server is")
	case p.Forgets && p.Server == "":
		return outcome.Usagef("--server-forgets is for --server")
	case p.Server != "" && runtime.GOOS == "windows":
		return outcome.Usagef("--server: this system cannot stop processes")
	}
	return nil
}

// check checks what the command line names, and shows how far it has come.
func (o *checkOptions) check(ctx context.Context, arg string) (*check.Report, error) {
	url, err := target.Expand(arg)
	if err := cmp.Or(err, checkText("--prefix", o.Prefix, "--prefix PREFIX URL")); err != nil {
		return nil, err
	}
	over := withoutReader()
	defer over()
	var bar *progress
	o.Begun = func(title string, scenarios int) { bar = newProgress("check "+title, scenarios) }
	o.Examines = func(scenario string) { bar.at(scenario) }
	o.Examined = func(v check.Verdict) { bar.step(fold(line(v))) }
	report, err := check.Run(ctx, url, &o.Options)
	if report != nil {
		bar.done()
	}
	return report, err
}

// replay judges a history that was saved, and draws it.
func replay(w io.Writer, file string) error {
	h, err := histories.Read(file)
	if err != nil {
		return outcome.Usagef("--replay: %w", secret.File(file, err))
	}
	j := h.Check()
	timeline, err := h.Draw(file, j)
	switch {
	case j.InDoubt:
		err = errors.Join(outcome.Errorf(outcome.Unreachable, "in doubt: %s", stdio.Printable(h.Report(j))), err)
	case j.Refused():
		err = &outcome.Error{Code: outcome.Broken, Err: err}
		fmt.Fprintf(w, "broken: %s\n", stdio.Printable(h.Report(j)))
	case j.Undecided():
		err = errors.Join(
			outcome.Errorf(outcome.Unreachable, "the checker is not sure about a history of %d operations", j.Operations), err)
	default:
		fmt.Fprintf(w, "kept: one lock can have had the history of %d operations\n", j.Operations)
	}
	fmt.Fprintf(w, "its time line: %s\n", timeline)
	if h.Again != "" {
		fmt.Fprintf(w, "the same clients and faults again: %s\n", stdio.Printable(h.Again))
	}
	return err
}
