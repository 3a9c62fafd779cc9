package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-locker/locker/driver"
)

// By mistake a URL with its password may stand where a flag, a number or a command should be, and errors get into logs and
// cron's mail. So errors say which flag or argument is wrong, and do not show it.

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
	return usagef("%s (see %s --help)", what, c.CommandPath())
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
	return usagef("unknown command as the first argument%s (see locker --help)", hint)
}

// noArgs is cobra.NoArgs without the text that was typed.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no arguments (see %[1]s --help)", c.CommandPath())
	}
	return nil
}

// program matches names of programs and paths to them. NAME=value and URLs do not match.
var program = regexp.MustCompile(`^[\w./+-]+$`)

// shown returns the name of a program or a file, or other if it may be something else.
func shown(name, other string) string {
	if program.MatchString(name) {
		return name
	}
	return other
}

// reason returns what is wrong with a program, a file or a regular expression, without the text that was typed.
func reason(err error) error {
	if e, ok := errors.AsType[*syntax.Error](err); ok {
		return errors.New(e.Code.String())
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*exec.Error](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return err
}

// isURL reports whether s begins with a scheme of [locker.Open].
func isURL(s string) bool {
	scheme, _, ok := strings.Cut(strings.ToLower(s), "://")
	return ok && slices.Contains(driver.Schemes(), scheme)
}
