package redisscript

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// letters are how many.lua calls the scripts that it is made of.
var letters = map[*Script]byte{acquire: 'a', extend: 'e', release: 'r'}

// runAll makes calls in one round trip, several of one server by one script: that takes the server a fifth less time.
func (d *Driver) runAll(ctx context.Context, calls []Call, replies []Reply) {
	if len(calls) == 1 || d.apart.Load() || d.runner.Acknowledged() {
		d.runner.Run(ctx, calls, replies)
		return
	}
	var all [1]Reply
	d.runner.Run(ctx, []Call{combined(calls)}, all[:])
	again := d.separated(calls, all[0], replies)
	if len(again) == 0 {
		return
	}
	each, those := make([]Call, len(again)), make([]Reply, len(again))
	for i, which := range again {
		each[i] = calls[which]
	}
	d.runner.Run(ctx, each, those)
	for i, r := range those {
		r.MayHaveRun = r.Err != nil && (r.MayHaveRun || replies[again[i]].MayHaveRun)
		replies[again[i]] = r
	}
}

// combined is calls as one.
func combined(calls []Call) Call {
	all := Call{Script: many, Keys: make([]any, 0, 2*len(calls)), Args: make([]any, 2, 2+5*len(calls))}
	said := make([]byte, len(calls))
	var counts releases
	for i, c := range calls {
		said[i] = letters[c.Script]
		all.Keys = append(all.Keys, c.Keys...)
		if c.Script == release {
			counts = append(counts, c.Args[2].(*sendings))
			all.Args = append(all.Args, c.Args[:2]...)
		} else {
			all.Args = append(all.Args, c.Args...)
		}
	}
	all.Args[0], all.Args[1] = string(said), ""
	if len(counts) > 0 {
		all.Args[1] = counts
	}
	return all
}

// releases count how often those of a batch are written.
type releases []*sendings

// MarshalBinary implements encoding.BinaryMarshaler.
func (all releases) MarshalBinary() ([]byte, error) {
	var text []byte
	for _, s := range all {
		text = append(strconv.AppendInt(text, s.n.Add(1)-1, 10), ' ')
	}
	return text, nil
}

// NotRun implements Counter.
func (all releases) NotRun() {
	for _, s := range all {
		s.NotRun()
	}
}

// separated sets the replies to calls that were made as one. It returns which of them have to be made again by themselves.
func (d *Driver) separated(calls []Call, all Reply, replies []Reply) (again []int) {
	values, ok := all.Value.([]any)
	switch {
	case all.Err != nil:
		return d.failed(calls, all, replies)
	case !ok || len(values) != len(calls):
		err := fmt.Errorf("unexpected reply to %d calls: %v", len(calls), all.Value)
		return d.failed(calls, Reply{Err: err, MayHaveRun: true}, replies)
	}
	for i, v := range values {
		if replies[i].Value = v; v != nil {
			continue
		}
		again = append(again, i)
		if calls[i].Script == release { // which has done nothing
			calls[i].Args[2].(*sendings).NotRun()
		}
	}
	return again
}

// failed sets the replies to calls that were made as one, and have failed so. It returns which have to be made again.
func (d *Driver) failed(calls []Call, all Reply, replies []Reply) (again []int) {
	apart := all.Refused && (strings.HasPrefix(all.Err.Error(), "CROSSSLOT") || strings.HasPrefix(all.Err.Error(), "NOPERM"))
	if apart {
		d.apart.Store(true) // a Redis Cluster after all, or a user who may not use all of the locks
	}
	// A client library that would send a script again by itself does not if there is a release in it.
	sentOnce := !all.Refused && slices.ContainsFunc(calls, func(c Call) bool { return c.Script == release })
	for i, c := range calls {
		replies[i] = Reply{Err: all.Err, Refused: all.Refused, MayHaveRun: all.MayHaveRun && c.Script.Takes}
		if apart || sentOnce && c.Script != release {
			again = append(again, i)
		}
	}
	return again
}
