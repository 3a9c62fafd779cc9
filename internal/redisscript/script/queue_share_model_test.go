package script

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testwait"
)

// What queue_model_test.go has of shares.

// isShared reports whether the lock has shares, or claims of them.
func (w *world) isShared() bool { return w.owner() == "+" || w.owner() == ">+" }

// claimed reports whether the lock, or a share of it, is claimed for an owner.
func (w *world) claimed(owner string) bool {
	_, share := w.readers[">"+owner]
	return w.owner() == ">"+owner || w.isShared() && share
}

// downgrade is that the hold of member i becomes a share. If the reply is lost it makes no difference what it has: it counts on a share alone.
func (m *queueModel) downgrade(w *world, i int, lost bool) event {
	c, me := w.clients[i], m.members[i]
	name := me.owner + " downgrades"
	if lost {
		name += ", and the reply is lost"
	}
	return event{name: name, loss: lost, script: Downgrade, args: []any{me.owner}, after: func(w *world, reply any) error {
		if reply != any(int64(1)) && c.phase == holding {
			return fmt.Errorf("%s downgrades its hold, and hears that it had ended", me.owner)
		}
		if reply == any(int64(1)) && c.expired {
			return fmt.Errorf("%s downgrades a hold that has expired, and hears that it had not", me.owner)
		}
		w.clients[i].shares = true
		return nil
	}}
}

// expireShare ends a share, or what was claimed for one.
func (m *queueModel) expireShare(w *world, member string) {
	w.readers[member] = false
	w.expired = true
	for _, lasts := range w.readers {
		w.expired = w.expired && !lasts
	}
	for i, me := range m.members {
		if me.owner != strings.TrimPrefix(member, ">") {
			continue
		}
		c := &w.clients[i]
		c.excused = true
		c.expired = c.expired || me.owner == member
		if c.phase == holding {
			c.phase = ended
		}
	}
}

// checkShares returns what must not be of shares after an event that led from before to w.
func (m *queueModel) checkShares(before, w *world) error {
	if !w.isShared() || w.expired {
		return nil
	}
	index := func(owner string) int {
		return slices.IndexFunc(m.members, func(me member) bool { return me.owner == owner })
	}
	for _, z := range w.queue {
		i := index(z.Member.(string))
		if !m.members[i].shares() {
			break
		}
		if m.reachable(w, i) {
			return fmt.Errorf("others have shares, and %s waits for one, with nobody before it", m.members[i].owner)
		}
	}
	for i, me := range m.members {
		if !w.readers[me.owner] || before.readers[me.owner] && before.isShared() || before.owner() == me.owner {
			continue
		}
		mine := w.clients[i].seat
		for j, c := range w.clients {
			if !m.members[j].shares() && c.phase == waiting && c.seat > 0 && (mine == 0 || c.seat < mine) && !c.excused {
				return fmt.Errorf("%s is granted a share before %s, who asked before", me.owner, m.members[j].owner)
			}
		}
	}
	return nil
}

func TestQueueModel_everyOrderOfEventsWithShares(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		members    []member
		downgrades bool
		lossless   bool
	}{
		{"a reader and a writer", []member{reader, third}, true, false},
		{"two readers", []member{reader, otherReader}, false, false},
		{"a reader that polls, and a writer", []member{pollsToRead, third}, true, false},
		{"a reader and a writer of one process", []member{reader, ofTheReaders}, true, false},
		{"two readers and a writer, nothing is lost", []member{reader, otherReader, third}, true, true},
		{"a reader, a writer and a visitor, nothing is lost", []member{reader, third, visitor}, true, true},
		{"a reader, a writer and a newcomer, nothing is lost", []member{reader, third, newcomer}, false, true},
		{"a reader and two writers, nothing is lost", []member{reader, other, third}, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name != "a reader and a writer" {
				testwait.OnlyNightly(t, "a reader and a writer meet most of it")
			}
			t.Parallel()
			m := newQueueModel(t, c.members...)
			m.lossless, m.downgrades = c.lossless, c.downgrades
			require.NoError(t, m.explore())
			t.Logf("%d states", len(m.worlds))
		})
	}
}
