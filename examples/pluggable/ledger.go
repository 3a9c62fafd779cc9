package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
)

// ledger is a directory with a file for each job. It implements scheduler.Ledger for this example: a database would
// compare the token and write in one step, and so be safe from those who do not hold the lock at all.
type ledger string

// openLedger makes the directory if it is missing. One without a name is a new one, and removed.
func openLedger(dir string) (l ledger, remove func(), err error) {
	if dir != "" {
		return ledger(dir), func() {}, os.MkdirAll(dir, 0o700)
	}
	dir, err = os.MkdirTemp("", "pluggable")
	return ledger(dir), func() { _ = os.RemoveAll(dir) }, err
}

// entry is what a file holds.
type entry struct {
	Token uint64 `json:"token"` // the largest seen
	Done  bool   `json:"done"`
}

// Begin implements scheduler.Ledger.
func (l ledger) Begin(_ context.Context, job string, token uint64) (done bool, err error) {
	e, err := l.admit(job, token)
	if err != nil || e.Done {
		return e.Done, err
	}
	return false, l.write(job, e)
}

// Finish implements scheduler.Ledger.
func (l ledger) Finish(_ context.Context, job string, token uint64) error {
	e, err := l.admit(job, token)
	if err != nil {
		return err
	}
	e.Done = true
	return l.write(job, e)
}

// admit reads the job's entry, and refuses a stale token.
func (l ledger) admit(job string, token uint64) (e entry, err error) {
	text, err := os.ReadFile(l.file(job))
	if err == nil {
		err = json.Unmarshal(text, &e)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return e, err
	}
	if token == 0 || token < e.Token {
		return e, fmt.Errorf("the ledger has seen token %d, and refuses %d", e.Token, token)
	}
	e.Token = token
	return e, nil
}

// write replaces the file in one step, so that nobody reads half of it.
func (l ledger) write(job string, e entry) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	next := fmt.Sprintf("%s.%d", l.file(job), e.Token)
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return err
	}
	return os.Rename(next, l.file(job))
}

func (l ledger) file(job string) string {
	return filepath.Join(string(l), url.PathEscape(job)+".json")
}
