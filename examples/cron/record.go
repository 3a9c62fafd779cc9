package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/go-locker/locker/fence"
)

// record is a file that says which tick was done last. All processes share it, and it is what their lock protects: so it keeps
// the largest fencing token that it has seen, and refuses what an earlier holder has to say.
//
// Processes on many machines have a row in a database instead, which also compares the token and writes in one step: see
// package sqlfence. A file does not, so that of two processes who both believe that they hold the lock, which is rare, one
// may come between the other's look and its rename.
type record string

// entry is what the file holds.
type entry struct {
	Tick  time.Time `json:"tick"`
	Token uint64    `json:"token"`
}

// begin returns the last tick that was done. From now on earlier holders are refused.
func (r record) begin(token uint64) (last time.Time, err error) {
	e, err := r.admit(token)
	if err != nil {
		return time.Time{}, err
	}
	return e.Tick, r.write(e)
}

// finish notes that tick is done.
func (r record) finish(token uint64, tick time.Time) error {
	e, err := r.admit(token)
	if err != nil {
		return err
	}
	e.Tick = tick
	return r.write(e)
}

// admit reads the record on behalf of the holder with the token.
func (r record) admit(token uint64) (e entry, err error) {
	text, err := os.ReadFile(string(r))
	if err == nil {
		err = json.Unmarshal(text, &e)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return e, err
	}
	err = fence.Check(string(r), token, e.Token)
	e.Token = token
	return e, err
}

// write replaces the file in one step, so that nobody reads half of it.
func (r record) write(e entry) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	next, err := os.CreateTemp(filepath.Dir(string(r)), filepath.Base(string(r))+".*")
	if err != nil {
		return err
	}
	_, err = next.Write(text)
	err = errors.Join(err, next.Sync(), next.Close())
	if err == nil {
		err = os.Rename(next.Name(), string(r))
	}
	if err != nil {
		_ = os.Remove(next.Name())
	}
	return err
}
