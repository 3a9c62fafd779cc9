package watch

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/cmd/locker/internal/show"
	"github.com/go-locker/locker/internal/timeline"
)

// Lock is one lock.
type Lock struct {
	Name   string
	first  time.Time    // first answered look
	State  locker.State // at the last answered look
	at     time.Time    // of the last answered look; zero: none yet
	Err    error        // of the last look
	people []*person
	last   howHeld // how the last hold ended, until another begins
}

// person is one attempt to hold a lock: it waits, and then holds. Each reader is one.
type person struct {
	id    string
	label string
	wait  timeline.Stretch // from the first look that saw it to the last
	hold  timeline.Stretch
	token uint64
	lefts []timeline.Left // of the hold, at each look
	ended howHeld         // how the hold ended
}

// extend makes s last until at. It is empty until the first look that saw something.
func extend(s *timeline.Stretch, at time.Time) {
	if s.From.IsZero() {
		s.From = at
	}
	s.To = at
}

// howHeld is how a hold ended, as far as it shows.
type howHeld string

const (
	lasts    howHeld = ""
	expired  howHeld = "expired"
	released howHeld = "released" // or ended by force, or a session's end
	gone     howHeld = "ended"    // the backend does not tell how long a hold lasts
)

// see records the result of a look at l.
func (w *Watcher) see(l *Lock, now time.Time, s locker.State, err error) {
	tell := func(format string, args ...any) {
		what := fmt.Sprintf(format, args...)
		w.Events = append(w.Events, timeline.Event{
			At: now, Text: show.Printable(l.Name) + ": " + what,
			Alarm: strings.HasPrefix(what, "EXPIRED") || strings.HasPrefix(what, "TAKEN OVER"),
		})
	}
	if err != nil {
		if l.Err == nil {
			tell("not known: %v", err)
		}
		l.Err = err
		return
	}
	was := l.at
	holding, waiting := s.Shares, s.Waiters
	if s.Held && len(s.Shares) == 0 {
		holding = []locker.Participant{s.Holder}
	}
	var began []*person
	for _, p := range holding {
		one := l.person(p, s.Token, was)
		if one.hold.From.IsZero() {
			began = append(began, one)
		}
		one.token = s.Token
		extend(&one.hold, now)
		one.lefts = append(one.lefts, timeline.Left{At: now, Left: s.Left})
	}
	var over []*person
	for _, one := range l.people {
		if !one.hold.From.IsZero() && one.ended == lasts && one.hold.To.Before(now) {
			one.ended = one.end(now, w.interval)
			over = append(over, one)
		}
	}
	for _, p := range waiting {
		extend(&l.person(p, 0, was).wait, now)
	}
	if was.IsZero() {
		l.first = now
	}
	changed := len(l.State.Waiters) != len(waiting)
	l.State, l.at, l.Err = s, now, nil
	for _, one := range over {
		l.last = one.ended
		if one.ended == expired {
			tell("EXPIRED: %s did not renew the hold, token %s", one.label, show.Token(one.token))
		} else {
			tell("%s by %s, token %s", one.ended, one.label, show.Token(one.token))
		}
	}
	for _, one := range began {
		took := "held by"
		if l.last == expired {
			took, l.last = "TAKEN OVER by", lasts
		}
		tell("%s %s, token %s, %s waiting", took, one.label, show.Token(one.token), show.Waiters(s))
	}
	switch {
	case len(began)+len(over) > 0:
	case was.IsZero() && !s.Held:
		tell("nobody holds it, %s waiting", show.Waiters(s))
	case changed:
		tell("%s waiting", show.Waiters(s))
	}
}

// person returns the attempt of p: the unfinished one with the same ID that was seen at the last
// look, or a new one. Without IDs, metadata and token identify it.
func (l *Lock) person(p locker.Participant, token uint64, last time.Time) *person {
	id := p.ID
	if id == "" {
		id = fmt.Sprintf("%s, token %d", p.Metadata, token)
	}
	for _, one := range slices.Backward(l.people) {
		if one.id == id && one.ended == lasts && (!one.wait.To.Before(last) || !one.hold.To.Before(last)) {
			if p.Metadata != "" {
				one.label = show.Printable(p.Metadata)
			}
			return one
		}
	}
	one := &person{id: id, label: show.Printable(p.Metadata)}
	if one.label == "" {
		one.label = show.Printable(show.Shortened(id, 16))
	}
	l.people = append(l.people, one)
	return one
}

// end returns how a hold that is gone has ended. Renewal keeps two thirds of the TTL: a hold whose
// time left was at most half of that at its longest, and is over now, was not renewed.
func (p *person) end(now time.Time, interval time.Duration) howHeld {
	var most time.Duration
	for _, l := range p.lefts {
		most = max(most, l.Left)
	}
	last := p.lefts[len(p.lefts)-1]
	switch {
	case most == 0:
		return gone
	case last.Left <= most/2 && !last.At.Add(last.Left).After(now.Add(interval)):
		return expired
	default:
		return released
	}
}

// Holders returns the labels of the present holders.
func (l *Lock) Holders() string {
	var all []string
	for _, one := range l.people {
		if !one.hold.From.IsZero() && one.ended == lasts {
			all = append(all, one.label)
		}
	}
	return strings.Join(all, ", ")
}

// Since returns how long the present hold has lasted, by the backend or else by our looks: for a
// hold that was there at the first look that is a lower bound.
func (l *Lock) Since() string {
	if !l.State.Since.IsZero() {
		return show.Ago(l.State.Since).String()
	}
	for _, one := range l.people {
		if !one.hold.From.IsZero() && one.ended == lasts {
			text := show.Ago(one.hold.From).String()
			if one.hold.From.Equal(l.first) {
				return "over " + text
			}
			return text
		}
	}
	return ""
}
