package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/go-locker/locker/cmd/locker/internal/show"
)

// progress shows on stderr how far long work has come: a bar on a terminal, lines elsewhere.
type progress struct {
	title    string
	what     string // the step that has begun
	steps    int
	made     int
	began    time.Time
	terminal bool
}

func newProgress(title string, steps int) *progress {
	p := &progress{title: title, steps: steps, began: time.Now(), terminal: term.IsTerminal(int(os.Stderr.Fd()))}
	if !p.terminal {
		fmt.Fprintf(os.Stderr, "%s: %d steps\n", title, steps)
	}
	return p
}

// at shows which step has begun.
func (p *progress) at(what string) {
	p.what = what
	p.draw()
}

// draw draws the bar over what the line had before, and never beyond the end of the line.
func (p *progress) draw() {
	if !p.terminal {
		return
	}
	const full = 20
	part := full * p.made / p.steps
	bar := strings.Repeat("█", part) + strings.Repeat("░", full-part)
	line := fmt.Sprintf("%s %d/%d %v %s", bar, p.made, p.steps, time.Since(p.began).Round(time.Second), p.what)
	columns, _ := show.Terminal(os.Stderr)
	fmt.Fprint(os.Stderr, clearLine+show.Shortened(line, columns-1))
}

const clearLine = "\r\x1b[K"

// step ends a step. A line that is not empty stays; on a terminal it stands above the bar.
func (p *progress) step(line string) {
	p.made++
	if line != "" {
		p.done()
		fmt.Fprintln(os.Stderr, line)
	}
	p.draw()
}

// next ends a step that has no line of its own.
func (p *progress) next() {
	if p.terminal {
		p.step("")
	} else {
		p.step(fmt.Sprintf("%s: %d/%d %s", p.title, p.made+1, p.steps, p.what))
	}
}

// done removes the bar, also before the last step.
func (p *progress) done() {
	if p.terminal {
		fmt.Fprint(os.Stderr, clearLine)
	}
}
