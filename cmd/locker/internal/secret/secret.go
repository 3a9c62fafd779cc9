// Package secret keeps the user's arguments out of errors, which get into logs and cron's mail. By
// mistake a URL with its password may stand where a command, a file or a pattern should be.
package secret

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"regexp/syntax"
)

// program matches names of programs and paths to them. NAME=value and URLs do not match.
var program = regexp.MustCompile(`^[\w./+-]+$`)

// Shown returns the name of a program or a file, or other if it may be something else.
func Shown(name, other string) string {
	if program.MatchString(name) {
		return name
	}
	return other
}

// File returns the error of a file with its name, as far as that may be shown.
func File(name string, err error) error {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", Shown(name, "the file"), Reason(err))
	}
	return err
}

// Reason strips the typed text, which may be a secret, from an error of a program, file or pattern.
func Reason(err error) error {
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
