package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-locker/locker"
)

// history is what was seen of some locks.
type history struct {
	began    time.Time
	interval time.Duration // between two looks
	locks    []*watched
	events   []event
	told     int // of events, on a pipe
}

// watched is one lock.
type watched struct {
	name   string
	first  time.Time    // look that was answered
	state  locker.State // at the last look that was answered
	at     time.Time    // then; zero: never
	err    error        // of the last look
	people []*person
	last   howHeld // how the last hold ended, until another begins
}

// person is one attempt to hold a lock: it waits, and then holds. Each reader is one.
type person struct {
	id    string
	label string
	wait  stretch
	hold  stretch
	token uint64
	lefts []left  // of the hold, at each look
	ended howHeld // how the hold ended
}

// stretch is the time from the first look that saw something to the last. Both are zero if none
// did.
type stretch struct{ from, to time.Time }

func (s *stretch) see(at time.Time) {
	if s.from.IsZero() {
		s.from = at
	}
	s.to = at
}

type left struct {
	at   time.Time
	left time.Duration
}

// howHeld is how a hold ended, as far as it shows.
type howHeld string

const (
	lasts    howHeld = ""
	expired  howHeld = "expired"
	released howHeld = "released" // or ended by force, or a session's end
	gone     howHeld = "ended"    // the backend does not tell how long a hold lasts
)

// event is a change that was seen.
type event struct {
	at   time.Time
	lock string
	what string
}

// String returns a line.
func (e event) String() string {
	return fmt.Sprintf("%s %s: %s", e.at.Format(time.TimeOnly), printable(e.lock), e.what)
}

// find returns the lock called name, or nil.
func (h *history) find(name string) *watched {
	if i := slices.IndexFunc(h.locks, func(l *watched) bool { return l.name == name }); i >= 0 {
		return h.locks[i]
	}
	return nil
}

// lock returns the lock called name.
func (h *history) lock(name string) *watched {
	l := h.find(name)
	if l == nil {
		l = &watched{name: name}
		h.locks = append(h.locks, l)
	}
	return l
}

// see takes in what a look at l has shown.
func (h *history) see(l *watched, now time.Time, s locker.State, err error) {
	tell := func(format string, args ...any) {
		h.events = append(h.events, event{now, l.name, fmt.Sprintf(format, args...)})
	}
	if err != nil {
		if l.err == nil {
			tell("not known: %v", err)
		}
		l.err = err
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
		if one.hold.from.IsZero() {
			began = append(began, one)
		}
		one.token = s.Token
		one.hold.see(now)
		one.lefts = append(one.lefts, left{now, s.Left})
	}
	var over []*person
	for _, one := range l.people {
		if !one.hold.from.IsZero() && one.ended == lasts && one.hold.to.Before(now) {
			one.ended = one.end(now, h.interval)
			over = append(over, one)
		}
	}
	for _, p := range waiting {
		l.person(p, 0, was).wait.see(now)
	}
	if was.IsZero() {
		l.first = now
	}
	changed := len(l.state.Waiters) != len(waiting)
	l.state, l.at, l.err = s, now, nil
	for _, one := range over {
		l.last = one.ended
		if one.ended == expired {
			tell("EXPIRED: %s did not renew the hold, token %s", one.label, shownToken(one.token))
		} else {
			tell("%s by %s, token %s", one.ended, one.label, shownToken(one.token))
		}
	}
	for _, one := range began {
		took := "held by"
		if l.last == expired {
			took, l.last = "TAKEN OVER by", lasts
		}
		tell("%s %s, token %s, %d waiting", took, one.label, shownToken(one.token), len(waiting))
	}
	if changed && len(began) == 0 && len(over) == 0 {
		tell("%d waiting", len(waiting))
	}
}

// person returns who p is: the one that had its ID at the last look, or waited then. A backend
// without IDs has tokens.
func (l *watched) person(p locker.Participant, token uint64, last time.Time) *person {
	id := p.ID
	if id == "" {
		id = fmt.Sprintf("%s, token %d", p.Metadata, token)
	}
	for _, one := range slices.Backward(l.people) {
		if one.id == id && one.ended == lasts && (!one.wait.to.Before(last) || !one.hold.to.Before(last)) {
			if p.Metadata != "" {
				one.label = printable(p.Metadata)
			}
			return one
		}
	}
	one := &person{id: id, label: printable(p.Metadata)}
	if one.label == "" {
		one.label = printable(shortened(id, 16))
	}
	l.people = append(l.people, one)
	return one
}

// end returns how a hold ended that is not there any more. Renewal keeps two thirds of the TTL: a
// hold of which less than half was left, and whose time is over, was not renewed.
func (p *person) end(now time.Time, interval time.Duration) howHeld {
	var most time.Duration
	for _, l := range p.lefts {
		most = max(most, l.left)
	}
	last := p.lefts[len(p.lefts)-1]
	switch {
	case most == 0:
		return gone
	case last.left <= most/2 && !last.at.Add(last.left).After(now.Add(interval)):
		return expired
	default:
		return released
	}
}

// holders returns who holds the lock now, as text.
func (l *watched) holders() string {
	var all []string
	for _, one := range l.people {
		if !one.hold.from.IsZero() && one.ended == lasts {
			all = append(all, one.label)
		}
	}
	return strings.Join(all, ", ")
}

// sinceWhen returns how long the present hold has lasted. If the backend does not tell, one that
// was there at the first look has lasted longer.
func (l *watched) sinceWhen() string {
	if !l.state.Since.IsZero() {
		return ago(l.state.Since).String()
	}
	for _, one := range l.people {
		if !one.hold.from.IsZero() && one.ended == lasts {
			text := ago(one.hold.from).String()
			if one.hold.from.Equal(l.first) {
				return "over " + text
			}
			return text
		}
	}
	return ""
}
