package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	histories "github.com/go-locker/locker/internal/history"
)

// replay judges a history that was saved, and draws it.
func replay(w io.Writer, file string) error {
	h, err := histories.Read(file)
	if err != nil {
		return &statusError{code: exitUsage, err: fmt.Errorf("--replay: %w", err)}
	}
	j := h.Check()
	files, err := h.Draw(file, j)
	switch {
	case j.Refused():
		err = errors.Join(&statusError{code: exitBroken}, err)
		fmt.Fprintf(w, "broken: %s\nits page: %s\n", plain(h.Report(j)), files.Model)
	case j.Undecided():
		err = errors.Join(&statusError{code: exitUnreachable, err: fmt.Errorf("the checker is not sure about a history of %d operations", j.Operations)}, err)
	default:
		fmt.Fprintf(w, "kept: one lock can have had the history of %d operations\n", j.Operations)
	}
	fmt.Fprintf(w, "its time line: %s\n", files.Timeline)
	if h.Again != "" {
		fmt.Fprintf(w, "the same clients and faults again: %s\n", plain(h.Again))
	}
	return err
}

// plain returns text of a file, which commands no terminal.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || r == '\n' || r == '\t' {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}
