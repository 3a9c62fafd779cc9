// Package show formats locks, their holders and their waiters for the commands.
package show

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/term"

	"github.com/go-locker/locker"
)

// Printable quotes text that has characters which a terminal may take for a command.
func Printable(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) }) {
		return s
	}
	return strconv.Quote(s)
}

// Shortened returns text with at most so many characters.
func Shortened(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

// Terminal returns the size of a terminal: 80 columns, and any number of rows, if it is not known.
func Terminal(f *os.File) (columns, rows int) {
	columns, rows, _ = term.GetSize(int(f.Fd()))
	return cmp.Or(columns, 80), cmp.Or(rows, math.MaxInt)
}

// Screenful returns as much of text as has room on a terminal, each line in one row.
func Screenful(text string, columns, rows int) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) >= rows {
		lines = append(lines[:max(rows-2, 0)], fmt.Sprintf("… and %d more lines", len(lines)-rows+2))
	}
	for i, line := range lines {
		lines[i] = Shortened(line, columns)
	}
	return strings.Join(lines, "\n") + "\n"
}

// Ago returns how long ago t was, to a tenth of a second at first, and then to a second.
func Ago(t time.Time) time.Duration {
	d := time.Since(t)
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}

// Token returns a fencing token as text. ZooKeeper does not always tell it.
func Token(token uint64) string {
	if token == 0 {
		return "not known"
	}
	return strconv.FormatUint(token, 10)
}

// Participant returns the metadata and the ID of a holder or waiter.
func Participant(p locker.Participant) string {
	who := cmp.Or(Printable(p.Metadata), "an owner without metadata")
	if p.ID != "" {
		who += " (" + Printable(p.ID) + ")"
	}
	return who
}

// Holders returns the holder of the lock, or its readers.
func Holders(s locker.State) string {
	if len(s.Shares) == 0 {
		return Participant(s.Holder)
	}
	var all []string
	for _, p := range s.Shares {
		all = append(all, Participant(p))
	}
	return strings.Join(all, ", ")
}

// Waiters returns the number of waiters, and how many of them are at a Client that holds the lock.
func Waiters(s locker.State) string {
	n := fmt.Sprint(len(s.Waiters))
	own := slices.DeleteFunc(slices.Clone(s.Waiters), func(p locker.Participant) bool { return !WaitsForItself(s, p) })
	if len(own) > 0 {
		n += fmt.Sprintf(" (%d at the holder's Client)", len(own))
	}
	return n
}

// WaitsForItself reports whether a waiter is of a Client that holds the lock, by their IDs.
func WaitsForItself(s locker.State, waiter locker.Participant) bool {
	client, _, ok := strings.Cut(waiter.ID, "/")
	return ok && slices.ContainsFunc(append(s.Shares, s.Holder), func(p locker.Participant) bool {
		return strings.HasPrefix(p.ID, client+"/")
	})
}
