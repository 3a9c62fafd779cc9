package main

import (
	"context"
	"time"

	"github.com/go-locker/locker/fence/filefence"
)

// record is a file that says which tick was done last. All processes share it, and it is what their lock protects: so it keeps
// the largest fencing token that it has seen, in a file beside it, and refuses what an earlier holder has to say.
//
// Tokens of two locks cannot be compared: another lock server takes another file. Processes on many machines have a row in a
// database instead: see package sqlfence.
type record string

const perm = 0o644

// begin returns the last tick that was done. From now on earlier holders are refused.
func (r record) begin(ctx context.Context, token uint64) (last time.Time, err error) {
	text, err := filefence.Read(ctx, string(r), token, perm)
	if err != nil || text == nil { // nil: none was done yet
		return time.Time{}, err
	}
	err = last.UnmarshalText(text)
	return last, err
}

// finish notes that tick is done.
func (r record) finish(ctx context.Context, token uint64, tick time.Time) error {
	text, err := tick.MarshalText()
	if err != nil {
		return err
	}
	return filefence.Write(ctx, string(r), token, text, perm)
}
