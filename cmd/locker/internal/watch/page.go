package watch

import (
	"fmt"
	"time"

	"github.com/go-locker/locker/cmd/locker/internal/show"
	"github.com/go-locker/locker/internal/timeline"
)

const mostRows = 60 // of a lock: the latest

// Page returns the timeline until now.
func (w *Watcher) Page(title string, now time.Time) timeline.Page {
	p := timeline.Page{
		Title: "Locks of " + title, From: w.began, To: w.began.Add(max(now.Sub(w.began), time.Second)),
		Events: w.Events[max(0, len(w.Events)-200):],
		Clock:  func(at time.Time) string { return at.Format(time.TimeOnly) },
		Intro: []string{
			fmt.Sprintf("From %s to %s, one look every %v: what lasted for less may be missing.",
				w.began.Format(time.DateTime), now.Format(time.TimeOnly), w.interval),
			"A thin grey line waits. A coloured bar holds the lock; its dark part is how much of the TTL is left, and jumps up at each renewal. " +
				"A hold that was not renewed runs down to nothing, and ends in red: others have the lock then, whatever its holder does. " +
				"Point at a row for its times and its token.",
		},
	}
	for _, l := range w.Locks {
		people := l.people[max(0, len(l.people)-mostRows):]
		lock := timeline.Lock{Name: show.Printable(l.Name)}
		if dropped := len(l.people) - len(people); dropped > 0 {
			lock.Note = fmt.Sprintf("The first %d who came are left out.", dropped)
		}
		for _, one := range people {
			lock.Rows = append(lock.Rows, one.row(w.interval))
		}
		p.Locks = append(p.Locks, lock)
	}
	return p
}

// row is a person on the page. A person seen by one look alone lasts until the next look.
func (p *person) row(interval time.Duration) timeline.Row {
	r := timeline.Row{Label: show.Shortened(p.label, 32), Title: p.label + " (" + show.Printable(p.id) + ")"}
	if p.ended == expired {
		r.End = string(expired)
	}
	if !p.wait.From.IsZero() {
		r.Wait = timeline.Stretch{From: p.wait.From, To: p.wait.To.Add(interval)}
		if p.hold.From.After(p.wait.From) {
			r.Wait.To = p.hold.From
		}
		r.Title += fmt.Sprintf("; waited %v", r.Wait.To.Sub(r.Wait.From).Round(time.Millisecond))
	}
	if p.hold.From.IsZero() {
		return r
	}
	r.Hold = timeline.Stretch{From: p.hold.From, To: p.hold.To.Add(interval)}
	if p.ended == lasts {
		r.Hold.To = p.hold.To
	}
	r.Title += fmt.Sprintf("; held %v, token %s", r.Hold.To.Sub(r.Hold.From).Round(time.Millisecond), show.Token(p.token))
	if p.ended != lasts {
		r.Title += "; " + string(p.ended)
	}
	r.Lefts = p.lefts
	return r
}
