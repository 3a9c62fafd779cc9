package contention

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-locker/locker/conformance/internal/harness"
	"github.com/go-locker/locker/conformance/internal/party"
)

func TestDisjoint(t *testing.T) {
	began := time.Now()
	hold := func(who string, from, to int, token uint64) Interval {
		at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
		return Interval{Who: who, From: at(from), To: at(to), token: token}
	}
	lost := func(t Interval) Interval { t.lost = true; return t }
	for _, c := range []struct {
		what      string
		intervals []Interval
		broken    bool
	}{
		{"one after the other", []Interval{hold("A", 0, 10, 1), hold("B", 11, 20, 2)}, false},
		{"two at once", []Interval{hold("A", 0, 10, 1), hold("B", 9, 20, 2)}, true},
		{"the victim hears of it at its Unlock", []Interval{lost(hold("A", 0, 10, 1)), hold("B", 9, 20, 2)}, true},
		{"the thief hears of it at its Unlock", []Interval{hold("A", 0, 10, 1), lost(hold("B", 9, 20, 2))}, true},
		{"without tokens", []Interval{lost(hold("A", 0, 10, 0)), hold("B", 9, 20, 0)}, true},
		{"the victim was told from the first", []Interval{lost(hold("A", 0, 10, 0)), hold("B", 9, 20, 2)}, true},
		{"its time was over when the thief's Lock returned", []Interval{hold("A", 0, 10, 1), lost(hold("B", 9, 9, 2))}, false},
		{"lost while nobody else held", []Interval{lost(hold("A", 0, 10, 1)), hold("B", 11, 20, 2)}, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			e := party.NewEnv(t, harness.Harness{TTL: time.Second})
			defer e.Close()
			_, err := e.Trial.Run(time.Minute, func() { Disjoint(e, c.intervals) })
			assert.Equal(t, c.broken, err != nil, "%v", err)
		})
	}
}

// A lock whose calls take long has few holds on any machine.
func TestFew(t *testing.T) {
	for _, c := range []struct {
		what  string
		fast  time.Duration // one step in five
		slow  time.Duration
		holds int
		few   bool
	}{
		{"a fast lock on a busy machine", time.Millisecond, 150 * time.Millisecond, 32, true},
		{"a slow lock", 100 * time.Millisecond, 130 * time.Millisecond, 32, false},
		{"a slower one on a busy machine", 600 * time.Millisecond, time.Second, 5, false},
		{"hardly any", time.Second, time.Second, 2, true},
		{"many", time.Millisecond, 20 * time.Millisecond, scarce, false},
	} {
		at, intervals := time.Now(), make([]Interval, c.holds)
		for i := range intervals {
			intervals[i].From = at
			if at = at.Add(c.slow); i%5 == 0 {
				at = at.Add(c.fast - c.slow)
			}
		}
		assert.Equal(t, c.few, few(intervals), c.what)
	}
}
