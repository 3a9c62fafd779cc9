// Package timeline draws who held locks, and who waited, as a page of its own.
package timeline

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"
)

//go:embed timeline.html
var pageHTML string

var page = template.Must(template.New("timeline").Parse(pageHTML))

// The measures, in units of the drawing.
const (
	labelWidth = 230
	timeWidth  = 1000
	rowHeight  = 22
)

// Page is what is drawn.
type Page struct {
	Title    string
	Intro    []string // paragraphs
	From, To time.Time
	Clock    func(time.Time) string // writes a time
	Locks    []Lock
	Bands    []Band
	Events   []Event
}

// Lock is one lock, and the attempts to hold it.
type Lock struct {
	Name string
	Note string // below the name
	Rows []Row
}

// Row is one who waits and then holds. A stretch that is empty is not drawn.
type Row struct {
	Label, Title string
	Wait, Hold   Stretch
	Lefts        []Left // of the hold's TTL, in order
	End          string // how the hold ended, in red; empty: as it should
	Mark         bool   // the label is red
}

// Stretch is a time from one moment to another.
type Stretch struct{ From, To time.Time }

// Left is how much of the TTL was left at a time.
type Left struct {
	At   time.Time
	Left time.Duration
}

// Band is something that lasted for a time, across all locks.
type Band struct {
	Stretch
	Title string
}

// Event is a line of the list below the locks.
type Event struct {
	At    time.Time
	Text  string
	Alarm bool
}

// Write writes the page.
func (p Page) Write(w io.Writer) error { return page.Execute(w, p) }

// Width is that of a drawing.
func (Page) Width() int { return labelWidth + timeWidth + 20 }

// X is where a time is drawn.
func (p Page) X(at time.Time) float64 {
	return labelWidth + timeWidth*float64(at.Sub(p.From))/float64(p.lasts())
}

func (p Page) lasts() time.Duration { return max(p.To.Sub(p.From), time.Millisecond) }

// Wide is how wide a stretch is drawn: 0 if there is nothing.
func (p Page) Wide(s Stretch) float64 {
	if s.From.IsZero() {
		return 0
	}
	return max(p.X(s.To)-p.X(s.From), 1)
}

// Ticks are times that are written below each lock, a dozen at most.
func (p Page) Ticks() (all []time.Time) {
	step := 24 * time.Hour
	for _, ms := range []int{1, 5, 20, 100, 500, 1000, 2000, 5000, 10000, 30000, 60000, 120000, 300000, 600000, 1800000, 3600000, 7200000} {
		if d := time.Duration(ms) * time.Millisecond; p.lasts() <= 12*d {
			step = d
			break
		}
	}
	for at := p.From.Truncate(step).Add(step); at.Before(p.To); at = at.Add(step) {
		all = append(all, at)
	}
	return all
}

// Height is that of the drawing.
func (l Lock) Height() int { return rowHeight*len(l.Rows) + 20 }

// Y is where row i begins.
func (Lock) Y(i int) int { return i * rowHeight }

// Hue is the colour of row i.
func (Lock) Hue(i int) int { return i * 137 % 360 }

// Shape is what was left of the TTL, as a path within the row; empty if nothing was.
func (p Page) Shape(r Row) string {
	var most time.Duration
	for _, l := range r.Lefts {
		most = max(most, l.Left)
	}
	if most == 0 || r.Hold.From.IsZero() {
		return ""
	}
	const bottom, high = rowHeight - 4, rowHeight - 8
	var path strings.Builder
	to := func(at time.Time, left time.Duration) {
		fmt.Fprintf(&path, "L%.1f %.1f", p.X(at), bottom-high*float64(left)/float64(most))
	}
	fmt.Fprintf(&path, "M%.1f %d", p.X(r.Hold.From), bottom)
	for _, l := range r.Lefts {
		to(l.At, l.Left)
	}
	last := r.Lefts[len(r.Lefts)-1]
	to(r.Hold.To, max(last.Left-r.Hold.To.Sub(last.At), 0))
	to(r.Hold.To, 0)
	return path.String() + "Z"
}
