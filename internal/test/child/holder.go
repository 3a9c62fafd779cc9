//go:build unix

package child

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/go-locker/locker"
)

// What a holder is to hold is in its environment.
const (
	envURL  = "LOCKER_HOLDER_URL"
	envName = "LOCKER_HOLDER_NAME"
)

const holder = "holder"

func init() { Register(holder, hold) }

// hold is what a holder's process does. It holds a lock, with renewal, and says what it knows of that each time when it is asked.
func hold(t testing.TB) {
	c, err := locker.Open(context.Background(), os.Getenv(envURL))
	must(t, err)
	defer func() { _ = c.Close() }()
	m := c.Mutex(os.Getenv(envName))
	ctx := context.Background()
	must(t, m.Lock(ctx))
	lost := m.Hold().Lost()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		token := m.FencingToken() // before anything else
		extended := m.Extend(ctx)
		fmt.Println("knows", token, errors.Is(extended, locker.ErrLost), m.Hold().Deadline().UnixNano())
		if token > 0 {
			continue
		}
		select {
		case <-lost:
		case <-time.After(patient):
			t.Error("Lost does not fire")
		}
		fmt.Println("unlocked", errors.Is(m.Unlock(ctx), locker.ErrLost))
		return
	}
}

// Holder is the parent's side of a process that holds a lock.
type Holder struct{ *Process }

// Knowledge is what a holder says of its lock: the token, whether Extend says ErrLost, and until when it held.
type Knowledge struct {
	Token    uint64
	Lost     bool
	Deadline time.Time
}

// StartHolder starts a process that holds the lock when it has been asked once. TestMain calls [Serve].
func StartHolder(t *testing.T, url, name string) Holder {
	t.Helper()
	return Holder{Start(t, holder, envURL+"="+url, envName+"="+name)}
}

// Ask asks what the holder knows, which it says when it runs.
func (h Holder) Ask() {
	h.t.Helper()
	h.Tell("what do you know")
}

// Knows is the answer.
func (h Holder) Knows() Knowledge {
	h.t.Helper()
	words := h.Says("knows")
	if len(words) != 3 {
		h.t.Fatalf("the holder says %q", words)
	}
	token, err := strconv.ParseUint(words[0], 10, 64)
	must(h.t, err)
	deadline, err := strconv.ParseInt(words[2], 10, 64)
	must(h.t, err)
	return Knowledge{token, words[1] == "true", time.Unix(0, deadline)}
}

// UnlocksLost reports whether Unlock returned ErrLost, after Lost had fired.
func (h Holder) UnlocksLost() bool {
	h.t.Helper()
	words := h.Says("unlocked")
	return len(words) == 1 && words[0] == "true"
}
