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

	"github.com/go-locker/locker"
)

// A slip puts a URL with its password where a flag, a number or a command should be, and errors end up in logs and in cron's
// mail. So they say which flag or argument is wrong, and nothing of what it was.

// badFlag is the error of package pflag without what was typed.
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

// flagName is what a flag can be called. A URL, and most passwords, are not like that.
var flagName = regexp.MustCompile(`^[a-z][a-z-]*$`)

// specified returns the flag that does not exist, after a space, or nothing: what stands there may be no flag.
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

// unknownCommand is the error of a first argument that is no command of ours.
func unknownCommand(root *cobra.Command, arg string) error {
	hint := ""
	if near := root.SuggestionsFor(arg); len(near) > 0 {
		hint = "; did you mean " + near[0] + "?"
	}
	return usagef("unknown command as the first argument%s (see locker --help)", hint)
}

// noArgs is cobra.NoArgs without what was typed.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no arguments (see %[1]s --help)", c.CommandPath())
	}
	return nil
}

// program is what names of programs, and paths to them, are made of. NAME=value and a URL are not.
var program = regexp.MustCompile(`^[\w./+-]+$`)

// shown returns the name of a program or a file, or other where that may be something else.
func shown(name, other string) string {
	if program.MatchString(name) {
		return name
	}
	return other
}

// reason returns what is wrong with a program, a file or a regular expression, without what was typed.
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

// isURL reports whether s is a URL that [locker.Open] would take, or would like to.
func isURL(s string) bool {
	scheme, _, ok := strings.Cut(strings.ToLower(s), "://")
	return ok && slices.Contains(locker.Schemes(), scheme)
}
