package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-locker/locker/conformance"

	"github.com/go-locker/locker/cmd/locker/internal/job"
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
	strict  bool
	run     string
	ttl     time.Duration
	prefix  string
	clients int
	output  string
	seed    uint64
	replay  string
	known   string
	limit   time.Duration
	program execOptions
}

func newCheck() *cobra.Command {
	var o checkOptions
	c := &cobra.Command{
		Use:               "check [flags] URL | check [flags] --exec COMMAND | check --replay FILE",
		Short:             "Find out which promises the locks of a server, or program, keep",
		Long:              checkHelp,
		Example:           "  locker check redis://localhost:6379\n  locker check --run 'token|fenc' --output json - > verdicts.json\n  locker check --output junit etcd://h1:2379,h2:2379,h3:2379 > junit.xml\n  locker check --exec 'python3 lock.py' --address localhost:6379",
		Args:              args(0, 1, "want one URL, as in: locker check redis://localhost:6379"),
		ValidArgsFunction: schemes,
		RunE: func(c *cobra.Command, args []string) error {
			if o.replay != "" {
				return replay(os.Stdout, o.replay)
			}
			if err := errors.Join(format(o.output, "text", "json", "junit"), o.program.valid(len(args))); err != nil {
				return err
			}
			if err := flag.Set("conformance.seed", strconv.FormatUint(o.seed, 10)); err != nil {
				return err
			}
			ctx, stop := interruptible(c.Context())
			defer stop()
			if o.program.trace && o.run == "" {
				return firstError(context.Cause(ctx), o.trace(ctx))
			}
			report, err := o.checkOf(ctx, args)
			if report != nil { // whatever ended the check
				err = errors.Join(report.write(os.Stdout, o.output), err)
			}
			return firstError(context.Cause(ctx), err)
		},
	}
	f := c.Flags()
	o.flags(f)
	o.program.flags(f)
	f.StringVar(&o.known, "known", "", "a `file` of known deviations, one a line: name of the scenario: reason")
	f.DurationVar(&o.limit, "limit", 0, "how long the check may take in all; scenarios that did not run are counted (default: no limit)")
	f.Uint64Var(&o.seed, "seed", 0, "seed of random histories, to run the same calls and faults again; 0: a new seed each time")
	f.StringVar(&o.replay, "replay", "", "only judge the history in this `file`, and draw it")
	f.StringVarP(&o.output, "output", "o", "text", "text, json or junit")
	return c
}

// scenarios returns those that --run selects.
func (o *checkOptions) scenarios() ([]conformance.Scenario, error) {
	match, err := regexp.Compile(o.run)
	if err != nil {
		return nil, usagef("--run: %w", reason(err))
	}
	var scenarios []conformance.Scenario
	for _, s := range conformance.Scenarios() {
		if match.MatchString(s.Name) {
			scenarios = append(scenarios, s)
		}
	}
	if len(scenarios) == 0 {
		return nil, usagef("--run: no scenario's name matches")
	}
	return scenarios, nil
}

// checkOf examines what the command line names. The report is nil if it could not begin.
func (o *checkOptions) checkOf(ctx context.Context, args []string) (*checkReport, error) {
	if o.program.exec == "" {
		url, err := expandURL(args[0])
		if err != nil {
			return nil, err
		}
		return o.check(ctx, url)
	}
	return o.examine(ctx, func() (*examiner, error) { return newProgramExaminer(ctx, o) })
}

// check examines a deployment.
func (o *checkOptions) check(ctx context.Context, url string) (*checkReport, error) {
	return o.examine(ctx, func() (*examiner, error) { return newExaminer(ctx, url, o) })
}

func (o *checkOptions) examine(ctx context.Context, begin func() (*examiner, error)) (*checkReport, error) {
	scenarios, err := o.scenarios()
	if err != nil {
		return nil, err
	}
	known, err := readKnown(o.known)
	if err != nil {
		return nil, err
	}
	e, err := begin()
	if err != nil {
		return nil, err
	}
	e.harness.Deviations = known
	if o.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.limit, &statusError{code: exitUnreachable, err: fmt.Errorf("the check was ended after %v, see --limit", o.limit)})
		defer cancel()
	}
	report := &checkReport{Backend: e.title, TTL: e.ttl.String(), Prefix: e.prefix, Began: time.Now(), Guarantees: e.harness.Promises, Warnings: e.warnings, Bounds: e.bounds, reasons: o.program.exec != "", strict: o.strict}
	err = e.examineAll(ctx, scenarios, report)
	report.NotRun = len(scenarios) - len(report.Results)
	report.Seconds = time.Since(report.Began).Seconds()
	report.Left = e.cleanUp()
	return report, err
}

func (e *examiner) examineAll(ctx context.Context, scenarios []conformance.Scenario, report *checkReport) error {
	bar := newProgress("check "+e.title, len(scenarios))
	defer bar.done()
	for _, s := range scenarios {
		bar.at(s.Name)
		v := e.examine(ctx, s)
		if ctx.Err() != nil {
			ended := context.Cause(ctx)
			if exitCode(ended) == exitUnreachable && report.count(conformance.Broken) > 0 { // --limit
				return &statusError{code: exitBroken, err: ended}
			}
			return ended
		}
		var probeErr error
		if v.Outcome == conformance.Broken || v.Outcome == conformance.Undecided {
			// Do not blame a lock for a server that has become unreachable.
			if probeErr = e.probe(ctx); probeErr != nil {
				v.Outcome, v.Seen = conformance.Undecided, fmt.Sprintf("the backend is unreachable now: %v", probeErr)
			}
		}
		report.Results = append(report.Results, v)
		bar.step(fold(v.line()))
		if probeErr != nil {
			return probeErr
		}
	}
	return report.verdict()
}

// interruptible returns a context that ends at the first signal, with the error of killedBy. A second signal ends the program.
func interruptible(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	job.Forward(signals)
	ended := make(chan struct{})
	go func() {
		select {
		case s := <-signals:
			signal.Stop(signals)
			fmt.Fprintln(os.Stderr, "locker: interrupted; unlocking")
			cancel(killedBy(s))
		case <-ended:
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(ended)
	}
}

// firstError returns the first error that is not nil.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// format returns an error unless --output is one of the known formats.
func format(output string, known ...string) error {
	if slices.Contains(known, output) {
		return nil
	}
	return usagef("--output: must be one of %s", strings.Join(known, ", "))
}

// args checks how many arguments there are.
func args(least, most int, want string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least || most > 0 && len(args) > most {
			return usagef("%s", want)
		}
		return nil
	}
}
