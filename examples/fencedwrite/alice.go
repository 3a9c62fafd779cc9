package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence"
)

// aliceVariable tells the child what to do: not by flags, which everybody on the machine can read, as URLs have passwords.
const aliceVariable = "FENCEDWRITE_ALICE"

// settings are what the parent, who is Bob, and the child, who is Alice, have in common.
type settings struct {
	Lock     string        // URL
	TTL      time.Duration // of the lock
	Database string
	Table    string
	Account  int
	Fenced   bool // writes have the token with them
}

const (
	deposit = 10 // by Alice
	salary  = 50 // by Bob
)

// alice is the child: she takes the lock, reads, and is stopped before she writes. What she says are lines on out; she goes on
// after a line from in.
//
// She does nothing wrong. A process that checks its lock before each write can still be stopped between the check and the write.
func alice(ctx context.Context, s settings, in io.Reader, out io.Writer) error {
	registerShared()
	accounts, err := openAccount(s.Database, s.Table)
	if err != nil {
		return err
	}
	defer accounts.db.Close()
	client, err := locker.Open(ctx, s.Lock, locker.WithMetadata("alice"))
	if err != nil {
		return err
	}
	defer client.Close()

	m := client.Mutex(lockName, locker.WithTTL(s.TTL)) // renewed, for as long as she runs
	if err := m.Lock(ctx); err != nil {
		return err
	}
	wrote, err := s.readStopWrite(ctx, accounts, m.FencingToken(), in, out)
	unlocked := m.Unlock(context.WithoutCancel(ctx))
	if err != nil {
		return errors.Join(err, unlocked)
	}
	fmt.Fprintf(out, "goes on, and writes %s; her Unlock says: %v\n", wrote, errors.Unwrap(unlocked))
	return nil
}

// readStopWrite says what has become of the write.
func (s settings) readStopWrite(ctx context.Context, accounts *account, token uint64, in io.Reader, out io.Writer) (string, error) {
	balance, err := accounts.read(ctx, s.Account)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(out, "holds the lock, token %d, and reads %d\n", token, balance)
	if _, err := bufio.NewReader(in).ReadString('\n'); err != nil { // here she is stopped
		return "", err
	}
	sum := fmt.Sprintf("%d + %d = %d", balance, deposit, balance+deposit)
	err = s.put(ctx, accounts, balance+deposit, token)
	if errors.Is(err, fence.ErrStale) {
		return fmt.Sprintf("%s: REFUSED, %v", sum, fence.ErrStale), nil
	}
	return sum, err
}

// put writes a new balance, one way or the other.
func (s settings) put(ctx context.Context, accounts *account, balance int, token uint64) error {
	if s.Fenced {
		return accounts.writeFenced(ctx, s.Account, balance, token)
	}
	return accounts.write(ctx, s.Account, balance)
}

// runAlice is main of the child.
func runAlice(ctx context.Context, encoded string) error {
	var s settings
	if err := json.Unmarshal([]byte(encoded), &s); err != nil {
		return fmt.Errorf("%s: %w", aliceVariable, err)
	}
	return alice(ctx, s, os.Stdin, os.Stdout)
}
