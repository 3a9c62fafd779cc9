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
func (p Page) Write(w io.Writer) error {
	d := drawing{Page: p, Width: labelWidth + timeWidth + 20}
	all := max(p.To.Sub(p.From), time.Millisecond)
	step := tickStep(all)
	for at := p.From.Truncate(step).Add(step); at.Before(p.To); at = at.Add(step) {
		d.Ticks = append(d.Ticks, tick{p.x(at), p.Clock(at)})
	}
	for _, b := range p.Bands {
		d.Shades = append(d.Shades, shade{p.x(b.From), max(p.x(b.To)-p.x(b.From), 1), b.Title})
	}
	for _, l := range p.Locks {
		one := lock{Name: l.Name, Note: l.Note, Height: rowHeight*len(l.Rows) + 20}
		for i, r := range l.Rows {
			one.Rows = append(one.Rows, p.row(i, r))
		}
		d.Drawn = append(d.Drawn, one)
	}
	return page.Execute(w, d)
}

func (p Page) x(at time.Time) float64 {
	return labelWidth + timeWidth*float64(at.Sub(p.From))/float64(max(p.To.Sub(p.From), time.Millisecond))
}

// drawing is what the template reads.
type drawing struct {
	Page
	Width  int
	Ticks  []tick
	Shades []shade
	Drawn  []lock
}

// Time writes a time.
func (d drawing) Time(at time.Time) string { return d.Clock(at) }

type tick struct {
	X     float64
	Label string
}

type shade struct {
	X, W  float64
	Title string
}

type lock struct {
	Name, Note string
	Height     int
	Rows       []row
}

type row struct {
	Y, Top, Mid  int
	Label, Title string
	Mark         bool
	Hue          int
	WaitX, WaitW float64 // W is 0 if there is nothing
	HoldX, HoldW float64
	Shape        string // of what is left of the TTL, as a path
	EndX         float64
	End          string
}

func (p Page) row(i int, from Row) row {
	r := row{
		Y: i * rowHeight, Top: i*rowHeight + 4, Mid: i*rowHeight + rowHeight/2,
		Label: from.Label, Title: from.Title, Mark: from.Mark, Hue: i * 137 % 360, End: from.End,
	}
	if w := from.Wait; !w.From.IsZero() {
		r.WaitX, r.WaitW = p.x(w.From), p.x(w.To)-p.x(w.From)
	}
	h := from.Hold
	if h.From.IsZero() {
		return r
	}
	r.HoldX, r.EndX = p.x(h.From), p.x(h.To)
	r.HoldW = max(r.EndX-r.HoldX, 1)
	var most time.Duration
	for _, l := range from.Lefts {
		most = max(most, l.Left)
	}
	if most == 0 {
		return r
	}
	bottom, high := float64(r.Y+rowHeight-4), float64(rowHeight-8)
	var path strings.Builder
	fmt.Fprintf(&path, "M%.1f %.1f", r.HoldX, bottom)
	for _, l := range from.Lefts {
		fmt.Fprintf(&path, "L%.1f %.1f", p.x(l.At), bottom-high*float64(l.Left)/float64(most))
	}
	last := from.Lefts[len(from.Lefts)-1]
	end := max(last.Left-h.To.Sub(last.At), 0)
	fmt.Fprintf(&path, "L%.1f %.1fL%.1f %.1fZ", r.EndX, bottom-high*float64(end)/float64(most), r.EndX, bottom)
	r.Shape = path.String()
	return r
}

// tickStep returns the time between two ticks, of which there are to be a dozen at most.
func tickStep(all time.Duration) time.Duration {
	for _, ms := range []int{1, 5, 20, 100, 500, 1000, 2000, 5000, 10000, 30000, 60000, 120000, 300000, 600000, 1800000, 3600000, 7200000} {
		if step := time.Duration(ms) * time.Millisecond; all <= 12*step {
			return step
		}
	}
	return 24 * time.Hour
}
