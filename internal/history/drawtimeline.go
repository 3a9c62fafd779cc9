package history

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/go-locker/locker/internal/timeline"
)

// mostRows are as many holds of a lock as the timeline shows.
const mostRows = 200

// drawTimeline writes the page that shows who held what, and when. Of a history that is refused it
// shows what surrounds the contradiction, of that lock alone.
func (h *History) drawTimeline(j Judgement, file string) error {
	var epoch time.Time // not the zero Time, which is no time
	epoch = epoch.Add(time.Hour)
	when := func(t int64) time.Time { return epoch.Add(time.Duration(t)) }
	holds, witness := h.raw(), map[int]bool{}
	p := timeline.Page{
		Title: "A history that one lock allows",
		Clock: func(at time.Time) string { return fmt.Sprintf("%.3f s", at.Sub(epoch).Seconds()) },
		Intro: []string{h.Scenario, "A thin grey line waits for Lock. A coloured bar holds the lock, from the Lock that was granted to its Unlock, or to the moment in " +
			"which the client was told of the loss, which is red. A grey band is a fault. Point at a row or a band for more."},
	}
	if h.Scenario == "" {
		p.Intro = p.Intro[1:]
	}
	from, to := h.span()
	names := slices.Sorted(maps.Keys(holds))
	if j.witness != nil {
		p.Title = "A history that no lock allows"
		p.Intro = append(p.Intro, "The holds whose names are red contradict each other.")
		names = []string{j.Name}
		from, to = span(j.witness)
		margin := max((to-from)/2, int64(50*time.Millisecond))
		from, to = max(0, from-margin), to+margin
		for _, s := range j.witness {
			witness[s[0].Input.(move).hold] = true
		}
	}
	p.From, p.To = when(from), when(to)
	for _, name := range names {
		lock := timeline.Lock{Name: name}
		left := 0
		for _, t := range holds[name] {
			row, until := h.row(t, when, to)
			switch {
			case t.grant.Call > to || until < from:
				continue
			case len(lock.Rows) == mostRows:
				left++
				continue
			}
			row.Mark = witness[t.id]
			clip(&row.Wait, p.From, p.To)
			clip(&row.Hold, p.From, p.To)
			lock.Rows = append(lock.Rows, row)
		}
		if left > 0 {
			lock.Note = fmt.Sprintf("The last %d holds are left out.", left)
		}
		p.Locks = append(p.Locks, lock)
	}
	for _, f := range h.Faults {
		if f.From <= to && f.To >= from {
			b := timeline.Band{Stretch: timeline.Stretch{From: when(f.From), To: when(f.To)}, Title: f.What}
			p.Events = append(p.Events, timeline.Event{At: b.From, Text: fmt.Sprintf("%s, for %v", f.What, time.Duration(f.To-f.From).Round(time.Millisecond))})
			clip(&b.Stretch, p.From, p.To)
			p.Bands = append(p.Bands, b)
		}
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(p.Write(out), out.Close())
}

func clip(s *timeline.Stretch, from, to time.Time) {
	if s.From.IsZero() {
		return
	}
	if s.From.Before(from) {
		s.From = from
	}
	if s.To.After(to) {
		s.To = to
	}
	if s.To.Before(s.From) {
		*s = timeline.Stretch{}
	}
}

// row is a hold on the page, and until when it lasted as far as its client could see.
func (h *History) row(t *hold, when func(int64) time.Time, last int64) (timeline.Row, int64) {
	c := h.Clients[t.client]
	r := timeline.Row{Label: c.Who, Title: fmt.Sprintf("%s: %s, token %d", c.Who, t.grant.Op, t.token)}
	until := last
	switch {
	case t.toldLost > 0:
		until, r.End = t.toldLost, "lost"
		r.Title += "; told of the loss at " + at(until)
	case t.unlock != nil:
		until = t.unlock.Return
		r.Title += fmt.Sprintf("; %s, at %s", t.unlock, at(t.unlock.Call))
	}
	r.Wait = timeline.Stretch{From: when(t.grant.Call), To: when(t.grant.Return)}
	r.Hold = timeline.Stretch{From: when(t.grant.Return), To: when(max(until, t.grant.Return))}
	for _, b := range t.breaches {
		r.End = b.why
		r.Title += "; " + b.String() + ", but " + b.why
	}
	if c.Renews {
		return r, until
	}
	r.Lefts = []timeline.Left{{At: when(t.grant.Return), Left: c.TTL - time.Duration(t.grant.Return-t.grant.Call)}}
	for _, e := range t.extends {
		if e.Err == NoErr && e.Return < until {
			before := r.Lefts[len(r.Lefts)-1]
			r.Lefts = append(r.Lefts, timeline.Left{At: when(e.Return), Left: max(0, before.Left-when(e.Return).Sub(before.At))},
				timeline.Left{At: when(e.Return), Left: c.TTL - time.Duration(e.Return-e.Call)})
		}
	}
	return r, until
}

// span is from the first call to the last return.
func (h *History) span() (from, to int64) {
	for i, e := range h.Events {
		if i == 0 {
			from = e.Call
		}
		from, to = min(from, e.Call), max(to, e.Return)
	}
	return from, to
}
