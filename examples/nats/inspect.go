package natslock

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/go-locker/locker/driver"
)

// Inspect reads the lock and its queue, in one request. How much of the TTL is left the server does
// not tell.
func (d *Driver) Inspect(ctx context.Context, name string) (driver.State, error) {
	lock, waiters, err := d.look(ctx, name)
	if err != nil {
		return driver.State{}, err
	}
	s := driver.State{Held: lock.Owner != "", Token: lock.Token, Holder: participant(lock)}
	slices.SortFunc(waiters, func(a, b entry) int { return cmp.Compare(a.Place, b.Place) })
	for _, w := range waiters {
		if w.Owner != lock.Owner { // the holder leaves the queue after it was granted the lock
			s.Waiters = append(s.Waiters, participant(w))
		}
	}
	return s, nil
}

func held(lock entry) error {
	if lock.Owner == "" {
		return driver.ErrHeld // it is for the first waiter
	}
	return &driver.HeldError{Holder: participant(lock)}
}

func participant(e entry) driver.Participant {
	return driver.Participant{ID: e.Owner, Metadata: string(e.Metadata)}
}

// ForceRelease writes a free record over the hold that is shown.
func (d *Driver) ForceRelease(ctx context.Context, name string, shown driver.State) error {
	_, err := d.change(ctx, name, entry{}, func(lock entry) (record, time.Duration, error) {
		switch {
		case lock.Owner == "":
			return record{}, 0, driver.ErrNotHeld
		case shown.Token > 0 && lock.Token != shown.Token, shown.Holder.ID != "" && lock.Owner != shown.Holder.ID:
			return record{}, 0, held(lock)
		}
		return record{Name: name, Token: lock.Token}, freeTTL, nil
	})
	return err
}

// List goes through the locks in the order of their revisions. One that is extended meanwhile comes
// later, perhaps twice.
func (d *Driver) List(prefix string) driver.Pager {
	from := uint64(1)
	return func(ctx context.Context) (page driver.Page, err error) {
		entries, more, err := d.get(ctx, query{Next: d.subject("*.lock"), From: from, Batch: 256})
		for _, e := range entries {
			if from = e.seq + 1; e.Owner != "" && strings.HasPrefix(e.Name, prefix) {
				page.Names = append(page.Names, e.Name)
			}
		}
		page.Last = !more
		return page, err
	}
}
