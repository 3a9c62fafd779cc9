package redisscript

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-locker/locker/driver"
)

// everybody is how far into the queue to look: to its end.
const everybody = -1

// See lua/lib/layout.lua.
const (
	claimMark  = ">" // before the owner that the lock, or a share, is claimed for
	sharesMark = "+" // the owner of a lock that is shared
)

// Inspect implements driver.Operator, in one round trip. Who waits to hold the lock alone has no
// metadata here, and who was handed the lock and has yet to take it is the first of the waiters
// still.
func (d *Driver) Inspect(ctx context.Context, name string) (driver.State, error) {
	keys := keysOf(name)
	reply, err := d.sender.call(ctx, inspect, keys[:], everybody)
	if err != nil {
		return driver.State{}, err
	}
	state, ok := parseState(reply)
	if !ok {
		return driver.State{}, fmt.Errorf("unexpected reply to the inspect script: %v", reply)
	}
	return state, nil
}

func parseState(reply any) (state driver.State, ok bool) {
	all, _ := reply.([]any)
	r := recordOf(inspectReply, all)
	owner, metadata, last := r.text("owner"), r.text("meta"), r.text("token")
	left, queue, readers := value[int64](r, "left"), value[[]any](r, "waiters"), value[[]any](r, "readers")
	age := value[int64](r, "age")
	token, err := strconv.ParseUint(cmp.Or(last, "0"), 10, 64)
	if r.bad || err != nil || left > int64(math.MaxInt64/time.Millisecond) {
		return state, false
	}
	state.Token = token
	claimant, claimed := strings.CutPrefix(owner, claimMark)
	switch {
	case owner == "" || left <= 0:
	case owner == sharesMark:
		state.Held, state.Left = true, time.Duration(left)*time.Millisecond
	case claimed && claimant == sharesMark:
	case claimed:
		state.Waiters = append(state.Waiters, driver.Participant{ID: claimant})
	default:
		state.Held, state.Left = true, time.Duration(left)*time.Millisecond
		state.Holder = driver.Participant{ID: owner, Metadata: metadata}
	}
	if state.Held && age >= 0 && token > 0 {
		state.Since = time.Now().Add(-time.Duration(age) * time.Microsecond)
	}
	for i, each := range slices.Concat(readers, queue) {
		id, ok := textOf(each)
		if !ok {
			return state, false
		}
		owner, waits := strings.CutPrefix(id, claimMark)
		id, metadata, _ := strings.Cut(owner, metadataMark)
		who := driver.Participant{ID: id, Metadata: metadata}
		if i < len(readers) && !waits {
			state.Shares = append(state.Shares, who)
			continue
		}
		state.Waiters = append(state.Waiters, who)
	}
	return state, true
}

// ForceRelease implements driver.Operator, in one round trip.
func (d *Driver) ForceRelease(ctx context.Context, name string, shown driver.State) error {
	keys, owners := keysOf(name), shown.Holder.ID
	if owners == "" {
		var all []string
		for _, share := range shown.Shares {
			all = append(all, share.ID)
		}
		owners = strings.Join(all, "\n")
	}
	reply, err := d.sender.call(ctx, force, keys[:], owners, shown.Token)
	if err != nil {
		return err
	}
	switch reply {
	case any(int64(1)):
		return nil
	case any(int64(0)):
		return driver.ErrNotHeld
	case any(int64(-1)):
		return driver.ErrHeld
	default:
		return fmt.Errorf("unexpected reply to the force script: %v", reply)
	}
}
