package history

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/go-locker/locker/internal/timeline"
)

// Report says what a person has to know of a history that no lock can have.
func (h *History) Report(j Judgement) string {
	var b strings.Builder
	fmt.Fprintf(&b, "there were %d operations. These, on one name, fit no order that one lock allows:", j.Operations)
	for _, line := range h.lines(j.witness) {
		b.WriteString("\n\t" + line)
	}
	for _, f := range h.Faults {
		if from, to := span(j.witness); f.From <= to && f.To >= from {
			fmt.Fprintf(&b, "\n\t(%s to %s: %s)", at(f.From), at(f.To), f.What)
		}
	}
	return b.String()
}

func at(t int64) string { return fmt.Sprintf("%.4f s", time.Duration(t).Seconds()) }

// lines are the operations of holds, in the order of their calls.
func (h *History) lines(holds []ops) []string {
	all := slices.Concat(holds...)
	slices.SortStableFunc(all, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	const enough = 40
	var lines []string
	for i, op := range all {
		if i == enough {
			return append(lines, fmt.Sprintf("and %d more", len(all)-i))
		}
		lines = append(lines, fmt.Sprintf("%s to %s: %s, %s",
			at(op.Call), at(op.Return), h.Clients[op.ClientId].Who, strings.ReplaceAll(op.Input.(move).text, "\n", ", ")))
	}
	return lines
}

// span is from the first call to the last return.
func span(holds []ops) (from, to int64) {
	for i, op := range slices.Concat(holds...) {
		if i == 0 {
			from = op.Call
		}
		from, to = min(from, op.Call), max(to, op.Return)
	}
	return from, to
}

// legal checks the holds of one name, in parts: what the checker takes grows fast with the length
// of a history.
func legal(holds []ops, limit time.Duration) porcupine.CheckResult {
	result, end, last, phase := porcupine.Ok, time.Now().Add(limit), uint64(0), uint64(0)
	for _, part := range parts(holds) {
		from, before := model, mutex{last: last, phase: phase} // a checker that ran out of time goes on for a moment
		from.Init = func() any { return before }
		left := max(time.Until(end), limit/10) // 0 is no limit
		switch porcupine.CheckOperationsTimeout(from, slices.Concat(part...), left) {
		case porcupine.Illegal:
			return porcupine.Illegal
		case porcupine.Unknown:
			result = porcupine.Unknown
		}
		if token, share := newest(part); token > last {
			last, phase = token, 0
			if share {
				phase = token
			}
		}
	}
	return result
}

// parts cuts a history where nothing is under way and nobody holds. All of a part comes before the
// next then, which begins with a free lock and the largest token so far: the parts are legal, one
// after the other, if and only if the whole is.
func parts(holds []ops) [][]ops {
	holds = slices.SortedStableFunc(slices.Values(holds), func(a, b ops) int { return cmp.Compare(a.begin(), b.begin()) })
	var all [][]ops
	first, over := 0, int64(math.MinInt64) // when all before is over
	for i, s := range holds {
		if i > first && s.begin() > over {
			all = append(all, holds[first:i])
			first = i
		}
		over = max(over, s.over())
	}
	return append(all, holds[first:])
}

// newest is the largest token, and whether a share had it.
func newest(holds []ops) (token uint64, share bool) {
	for _, s := range holds {
		of := slices.IndexFunc(s, func(op porcupine.Operation) bool {
			kind := op.Input.(move).kind
			return kind == takes || kind == mints
		})
		if of < 0 {
			continue
		}
		v := s[of].Input.(move)
		if v.token < token {
			continue
		}
		weak := v.share || slices.ContainsFunc(s, func(op porcupine.Operation) bool { return op.Input.(move).kind == weakens })
		token, share = v.token, weak
	}
	return token, share
}

// begin is the first call.
func (s ops) begin() int64 {
	return slices.MinFunc(s, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) }).Call
}

// over is the last return, or never if what was taken may still be held.
func (s ops) over() (at int64) {
	held, ended := false, false
	for _, op := range s {
		at = max(at, op.Return)
		held = held || op.Input.(move).kind == takes
		ended = ended || op.Input.(move).kind == ends
	}
	if held && !ended {
		return math.MaxInt64
	}
	return at
}

// Revoke is the kind of fault that ends a hold at the backend. It may come too late, and then finds
// nothing.
const Revoke = "Revoke"

// SlowToAct is how long after it has returned a fault may begin to act.
const SlowToAct = 100 * time.Millisecond

// Hits counts the faults of a kind: those that were caused, those that acted as far as the history
// shows it, and those of these that hit a holder.
type Hits struct{ All, Acted, OfHolders int }

// Hits counts the faults of each kind.
func (h *History) Hits() map[string]Hits {
	h.mu.Lock()
	defer h.mu.Unlock()
	counts := map[string]Hits{}
	for _, f := range h.Faults {
		c := counts[f.Kind]
		if f.Kind != Revoke || f.Until > 0 { // else nobody was known to hold
			c.All++
			if h.acted(f) {
				c.Acted++
				if f.Until > 0 {
					c.OfHolders++
				}
			}
		}
		counts[f.Kind] = c
	}
	return counts
}

// acted reports whether a fault did what it says, by what clients were told. Of what cannot be
// seen, such as a clock that jumps, it reports true.
func (h *History) acted(f Fault) bool {
	switch {
	case f.Answered:
		return false
	case f.Kind == Revoke:
		return h.endedEarly(f)
	case f.Mutes == Nobody:
		return true
	default:
		return h.nothingGranted(f)
	}
}

// nothingGranted reports whether those whom a fault kept from the backend were granted nothing
// while it lasted.
func (h *History) nothingGranted(f Fault) bool {
	from := f.Set + min(int64(SlowToAct), (f.Undone-f.Set)/2)
	for _, e := range h.Events {
		asked := e.Op != OpExtend // some Lockers extend without a request
		if (f.Mutes == Everyone || e.Client == f.Client) && e.Call >= from && e.Return <= f.Undone && e.grants() && asked {
			return false
		}
	}
	return true
}

// grants reports whether e gave a hold, or prolonged one.
func (e Event) grants() bool {
	return e.Err == NoErr && (e.Op == OpLock || e.Op == OpTryLock || e.Op == OpExtend)
}

// endedEarly reports whether the victim's hold ended before its time: its client was told so, or
// another was granted the lock.
func (h *History) endedEarly(f Fault) bool {
	end := min(f.From+(f.Until-f.From)*3/4, h.expiry(f))
	for _, e := range h.Events {
		if e.Client == f.Client && e.Op == OpUnlock && e.Err != IsLost && e.Return > f.From {
			end = min(end, e.Call)
		}
	}
	name := h.Clients[f.Client].Name
	return slices.ContainsFunc(h.Events, func(e Event) bool {
		switch {
		case e.Return < f.From || e.Return > end:
			return false
		case e.Client == f.Client:
			return e.tellsLoss()
		default:
			return h.Clients[e.Client].Name == name && e.Op != OpExtend && e.grants()
		}
	})
}

// expiry returns a time shortly before the victim's hold would have ended by itself.
func (h *History) expiry(f Fault) (at int64) {
	c := h.Clients[f.Client]
	if c.Renews {
		return math.MaxInt64
	}
	for _, e := range h.Events {
		if e.Client == f.Client && e.Call < f.From && e.grants() {
			at = max(at, e.Call+int64(c.TTL*9/10))
		}
	}
	return at
}

// tellsLoss reports whether e says, to one who holds, that the hold is lost.
func (e Event) tellsLoss() bool {
	return e.Op == OpLost || e.Op == OpToken && e.Token == 0 || e.Err == IsLost
}

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
	var from, to int64
	for i, e := range h.Events {
		if i == 0 {
			from = e.Call
		}
		from, to = min(from, e.Call), max(to, e.Return)
	}
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
