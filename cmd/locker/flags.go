package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-locker/locker/cmd/locker/internal/job"
	"github.com/go-locker/locker/cmd/locker/internal/outcome"
)

// interruptible calls f with a context that ends at the first signal. If f fails then, the error is
// the signal's. A second signal ends the program.
func interruptible(c *cobra.Command, f func(context.Context) error) error {
	signals := make(chan os.Signal, 1)
	job.Forward(signals)
	defer signal.Stop(signals)
	ctx, stop := job.Interruptible(c.Context(), signals, 0)
	err := f(ctx)
	killed := stop()
	if err == nil {
		return nil
	}
	return cmp.Or(killed, err)
}

// withoutReader keeps us from dying when we write what nobody reads any more, until the returned
// function is called: there is something to clean up.
func withoutReader() (over func()) {
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	return func() { signal.Stop(pipe) }
}

// format returns an error unless --output is one of the known formats.
func format(output string, known ...string) error {
	if slices.Contains(known, output) {
		return nil
	}
	return outcome.Usagef("--output: must be one of %s", strings.Join(known, ", "))
}

// args checks how many arguments there are.
func args(least, most int, want string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least || most > 0 && len(args) > most {
			return outcome.Usagef("%s", want)
		}
		return nil
	}
}

// By mistake a URL with its password may stand where a flag, a number or a command should be, and
// errors get into logs and cron's mail. So errors say which flag or argument is wrong, and do not
// show it.

// badFlag returns the error of package pflag without the text that was typed.
func badFlag(c *cobra.Command, err error) error {
	what := "a flag begins with - and a letter, or with -- and a word"
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
		what = "unknown flag" + specified(e)
	}
	if e, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		what = "--" + e.GetFlag().Name + " needs a value"
	}
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		what = "--" + e.GetFlag().Name + ": must be " + wanted(e.GetFlag())
	}
	return outcome.Usagef("%s (see %s --help)", what, c.CommandPath())
}

// flagName matches names of flags. URLs, and most passwords, do not match.
var flagName = regexp.MustCompile(`^[a-z][a-z-]*$`)

// specified returns the unknown flag, after a space, or "" if the text may be no flag.
func specified(e *pflag.NotExistError) string {
	switch name := e.GetSpecifiedName(); {
	case !flagName.MatchString(name):
		return ""
	case e.GetSpecifiedShortnames() != "":
		return " -" + name // one letter
	default:
		return " --" + name
	}
}

func wanted(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "duration":
		return "a duration, as in 10s"
	case "int":
		return "a whole number"
	case "bool":
		return "true or false"
	default:
		return "a " + f.Value.Type()
	}
}

// unknownCommand returns the error of a first argument that is no command.
func unknownCommand(root *cobra.Command, arg string) error {
	hint := ""
	if near := root.SuggestionsFor(arg); len(near) > 0 {
		hint = "; did you mean " + near[0] + "?"
	}
	return outcome.Usagef("unknown command as the first argument%s (see locker --help)", hint)
}

// noArgs is cobra.NoArgs without the text that was typed.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return outcome.Usagef("%s takes no arguments (see %[1]s --help)", c.CommandPath())
	}
	return nil
}
