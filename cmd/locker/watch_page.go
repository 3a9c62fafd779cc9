package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/go-locker/locker/internal/timeline"
)

const mostRows = 60 // of a lock: the latest

// alarm reports whether the event is one to look at.
func (e event) alarm() bool {
	return strings.HasPrefix(e.what, "EXPIRED") || strings.HasPrefix(e.what, "TAKEN OVER")
}

// page writes the timeline until now.
func (h *history) page(w io.Writer, title string, now time.Time) error {
	p := timeline.Page{
		Title: "Locks of " + title, From: h.began, To: h.began.Add(max(now.Sub(h.began), time.Second)),
		Clock: func(at time.Time) string { return at.Format(time.TimeOnly) },
		Intro: []string{
			fmt.Sprintf("From %s to %s, one look every %v: what lasted for less may be missing.", h.began.Format(time.DateTime), now.Format(time.TimeOnly), h.interval),
			"A thin grey line waits. A coloured bar holds the lock; its dark part is how much of the TTL is left, and jumps up at each renewal. " +
				"A hold that was not renewed runs down to nothing, and ends in red: others have the lock then, whatever its holder does. " +
				"Point at a row for its times and its token.",
		},
	}
	for _, l := range h.locks {
		people := l.people[max(0, len(l.people)-mostRows):]
		lock := timeline.Lock{Name: printable(l.name)}
		if dropped := len(l.people) - len(people); dropped > 0 {
			lock.Note = fmt.Sprintf("The first %d who came are left out.", dropped)
		}
		for _, one := range people {
			lock.Rows = append(lock.Rows, one.row(h.interval))
		}
		p.Locks = append(p.Locks, lock)
	}
	for _, e := range h.events[max(0, len(h.events)-200):] {
		p.Events = append(p.Events, timeline.Event{At: e.at, Text: printable(e.lock) + ": " + e.what, Alarm: e.alarm()})
	}
	return p.Write(w)
}

// row is a person on the page. What was seen at one look alone is as long as the time to the next.
func (p *person) row(interval time.Duration) timeline.Row {
	r := timeline.Row{Label: shortened(p.label, 32), Title: p.label + " (" + printable(p.id) + ")"}
	if p.ended == expired {
		r.End = string(expired)
	}
	if !p.wait.from.IsZero() {
		r.Wait = timeline.Stretch{From: p.wait.from, To: p.wait.to.Add(interval)}
		if p.hold.from.After(p.wait.from) {
			r.Wait.To = p.hold.from
		}
		r.Title += fmt.Sprintf("; waited %v", r.Wait.To.Sub(r.Wait.From).Round(time.Millisecond))
	}
	if p.hold.from.IsZero() {
		return r
	}
	r.Hold = timeline.Stretch{From: p.hold.from, To: p.hold.to.Add(interval)}
	if p.ended == lasts {
		r.Hold.To = p.hold.to
	}
	r.Title += fmt.Sprintf("; held %v, token %s", r.Hold.To.Sub(r.Hold.From).Round(time.Millisecond), shownToken(p.token))
	if p.ended != lasts {
		r.Title += "; " + string(p.ended)
	}
	for _, l := range p.lefts {
		r.Lefts = append(r.Lefts, timeline.Left{At: l.at, Left: l.left})
	}
	return r
}
