package main

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"
)

//go:embed watch.html
var watchHTML string

var watchPage = template.Must(template.New("watch").Parse(watchHTML))

// The timeline's measures, in units of its drawing.
const (
	labelWidth = 230
	timeWidth  = 1000
	rowHeight  = 22
	mostRows   = 60 // of a lock: the latest
)

// timeline is what the page draws.
type timeline struct {
	Title, Began, Ended string
	Interval            time.Duration
	Width               int
	Ticks               []tick
	Locks               []drawing
	Events              []event
}

// At returns when the event was, for the page.
func (e event) At() string { return e.at.Format(time.TimeOnly) }

// Text returns the event without its time, for the page.
func (e event) Text() string { return printable(e.lock) + ": " + e.what }

// Alarm reports whether the event is one to look at.
func (e event) Alarm() bool {
	return strings.HasPrefix(e.what, "EXPIRED") || strings.HasPrefix(e.what, "TAKEN OVER")
}

type tick struct {
	X     float64
	Label string
}

// drawing is one lock.
type drawing struct {
	Name    string
	Height  int
	Dropped int // rows that are left out
	Rows    []row
}

// row is a person, who waits and then holds.
type row struct {
	Y, Top, Mid  int
	Label, Title string
	Hue          int
	WaitX, WaitW float64 // W is 0 if there is nothing
	HoldX, HoldW float64
	Shape        string // of what is left of the TTL, as a path
	EndX         float64
	Expired      bool
}

// page writes the timeline until now.
func (h *history) page(w io.Writer, title string, now time.Time) error {
	all := max(now.Sub(h.began), time.Second)
	x := func(at time.Time) float64 {
		return labelWidth + timeWidth*float64(at.Sub(h.began))/float64(all)
	}
	t := timeline{
		Title: title, Began: h.began.Format(time.DateTime), Ended: now.Format(time.TimeOnly), Interval: h.interval,
		Width: labelWidth + timeWidth + 20, Events: h.events[max(0, len(h.events)-200):],
	}
	step := tickStep(all)
	for at := h.began.Truncate(step).Add(step); at.Before(now); at = at.Add(step) {
		t.Ticks = append(t.Ticks, tick{x(at), at.Format(time.TimeOnly)})
	}
	for _, l := range h.locks {
		people := l.people[max(0, len(l.people)-mostRows):]
		d := drawing{Name: printable(l.name), Height: rowHeight*len(people) + 20, Dropped: len(l.people) - len(people)}
		for i, p := range people {
			d.Rows = append(d.Rows, p.row(i, h.interval, x))
		}
		t.Locks = append(t.Locks, d)
	}
	return watchPage.Execute(w, t)
}

// row draws a person. What was seen at one look alone is as long as the time to the next.
func (p *person) row(i int, interval time.Duration, x func(time.Time) float64) row {
	r := row{Y: i * rowHeight, Top: i*rowHeight + 4, Mid: i*rowHeight + rowHeight/2, Label: shortened(p.label, 32), Hue: i * 137 % 360, Expired: p.ended == expired}
	r.Title = p.label + " (" + printable(p.id) + ")"
	if !p.wait.from.IsZero() {
		until := p.wait.to.Add(interval)
		if p.hold.from.After(p.wait.from) {
			until = p.hold.from
		}
		r.WaitX, r.WaitW = x(p.wait.from), x(until)-x(p.wait.from)
		r.Title += fmt.Sprintf("; waited %v", until.Sub(p.wait.from).Round(time.Millisecond))
	}
	if p.hold.from.IsZero() {
		return r
	}
	until := p.hold.to.Add(interval)
	if p.ended == lasts {
		until = p.hold.to
	}
	r.HoldX, r.EndX = x(p.hold.from), x(until)
	r.HoldW = max(r.EndX-r.HoldX, 1)
	r.Title += fmt.Sprintf("; held %v, token %s", until.Sub(p.hold.from).Round(time.Millisecond), shownToken(p.token))
	if p.ended != lasts {
		r.Title += "; " + string(p.ended)
	}
	var most time.Duration
	for _, l := range p.lefts {
		most = max(most, l.left)
	}
	if most == 0 {
		return r
	}
	bottom, high := float64(r.Y+rowHeight-4), float64(rowHeight-8)
	var path strings.Builder
	fmt.Fprintf(&path, "M%.1f %.1f", r.HoldX, bottom)
	for _, l := range p.lefts {
		fmt.Fprintf(&path, "L%.1f %.1f", x(l.at), bottom-high*float64(l.left)/float64(most))
	}
	last := p.lefts[len(p.lefts)-1]
	end := max(last.left-until.Sub(last.at), 0)
	fmt.Fprintf(&path, "L%.1f %.1fL%.1f %.1fZ", r.EndX, bottom-high*float64(end)/float64(most), r.EndX, bottom)
	r.Shape = path.String()
	return r
}

// tickStep returns the time between two ticks, of which there are to be a dozen at most.
func tickStep(all time.Duration) time.Duration {
	for _, seconds := range []int{1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200} {
		if step := time.Duration(seconds) * time.Second; all <= 12*step {
			return step
		}
	}
	return 24 * time.Hour
}
