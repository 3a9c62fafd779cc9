package main

import (
	"fmt"
	"os"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/go-locker/locker/cmd/locker/internal/show"
)

// progress shows on stderr how far long work has come: a bar on a terminal, lines elsewhere.
type progress struct {
	title string
	what  string // the step that has begun
	steps int
	made  int
	bar   *progressbar.ProgressBar // nil: lines
}

func newProgress(title string, steps int) *progress {
	p := &progress{title: title, steps: steps}
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		fmt.Fprintf(os.Stderr, "%s: %d steps\n", title, steps)
		return p
	}
	p.bar = progressbar.NewOptions(steps,
		progressbar.OptionSetWriter(os.Stderr),
		progressbar.OptionSetDescription(title),
		progressbar.OptionShowCount(),
		progressbar.OptionSetWidth(20),
		progressbar.OptionSetPredictTime(false), // steps take up to a minute
		progressbar.OptionSetElapsedTime(true),
		progressbar.OptionSetRenderBlankState(true),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionUseANSICodes(true),
	)
	return p
}

// at shows which step has begun.
func (p *progress) at(what string) {
	p.what = what
	if p.bar == nil {
		return
	}
	const width = 48
	p.bar.Describe(fmt.Sprintf("%-*s", width, show.Shortened(what, width)))
}

// step ends a step. A line that is not empty stays; on a terminal it stands above the bar.
func (p *progress) step(line string) {
	if p.bar == nil {
		if line != "" {
			fmt.Fprintln(os.Stderr, line)
		}
		return
	}
	if line != "" {
		_ = p.bar.Clear()
		fmt.Fprintln(os.Stderr, line)
	}
	_ = p.bar.Add(1)
}

// next ends a step that has no line of its own.
func (p *progress) next() {
	p.made++
	line := ""
	if p.bar == nil {
		line = fmt.Sprintf("%s: %d/%d %s", p.title, p.made, p.steps, p.what)
	}
	p.step(line)
}

// done removes the bar, also before the last step.
func (p *progress) done() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
