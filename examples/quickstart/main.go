// Quickstart shows what a lock does: two contenders, their fencing tokens, and a loss.
//
//	go run ./examples/quickstart                                     # in memory
//	go run -tags redis ./examples/quickstart redis://localhost:6379  # on a server
//
// The tag keeps the client for Redis, which takes half a minute to compile, out of the first. In examples/service
// any URL will do.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	_ "github.com/go-locker/locker/memory" // mem://
)

func main() {
	url := "mem://quickstart"
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	// Ctrl-C ends ctx; what is held is released on the way out.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	s := story{out: os.Stdout, start: time.Now(), ttl: 500 * time.Millisecond}
	err := s.tell(ctx, url)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		if scheme, _, _ := strings.Cut(url, "://"); !slices.Contains(driver.Schemes(), scheme) {
			fmt.Fprintln(os.Stderr, "redis:// takes go run -tags redis ./examples/quickstart; in examples/service any URL will do")
		}
		os.Exit(1)
	}
}

type story struct {
	out   io.Writer
	start time.Time
	ttl   time.Duration
}

func (s story) say(who, format string, args ...any) {
	fmt.Fprintf(s.out, "%5.2fs  %-6s %s\n", time.Since(s.start).Seconds(), who, fmt.Sprintf(format, args...))
}

// tell has two contenders share a lock as two processes would, each with a Client of its own.
func (s story) tell(ctx context.Context, url string) error {
	ttl := locker.WithTTL(s.ttl)
	alice, err := locker.Open(ctx, url, ttl, locker.WithMetadata("alice"))
	if err != nil {
		return err
	}
	defer alice.Close()
	bob, err := locker.Open(ctx, url, ttl, locker.WithMetadata("bob"))
	if err != nil {
		return err
	}
	defer bob.Close()

	account := &account{}
	const name = "orders/42" // with a TTL that is the story's own, whatever the URL says
	if err := s.handOver(ctx, alice.Mutex(name, ttl), bob.Mutex(name, ttl), account); err != nil {
		return err
	}
	// Without renewal a hold ends like that of a process which was paused: when its TTL is over.
	return s.loss(ctx, alice.Mutex(name, ttl, locker.WithoutRenewal()), bob.Mutex(name, ttl), account)
}

func (s story) handOver(ctx context.Context, alice, bob *locker.Mutex, account *account) error {
	if err := alice.Lock(ctx); err != nil {
		return err
	}
	s.say("alice", "holds %q, with fencing token %d", alice.Name(), alice.FencingToken())
	if err := bob.TryLock(ctx); !errors.Is(err, locker.ErrHeld) {
		return errors.Join(fmt.Errorf("bob's TryLock: want ErrHeld, got: %w", err), alice.Unlock(context.WithoutCancel(ctx)))
	}
	s.say("bob", "tries, and is told that another holds it")

	waited := make(chan error, 1)
	go func() { waited <- bob.Lock(ctx) }()
	s.say("bob", "waits for it")
	s.say("alice", "works for longer than her TTL of %v: the lock is renewed for her", s.ttl)
	pause(ctx, s.ttl*3/2)
	s.say("alice", "writes with her token: %v", account.write(alice.FencingToken(), "by alice"))
	if err := alice.Unlock(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	s.say("alice", "unlocks")
	if err := <-waited; err != nil {
		return err
	}
	s.say("bob", "holds it now, with token %d, which is larger", bob.FencingToken())
	s.say("bob", "writes with his token: %v", account.write(bob.FencingToken(), "by bob"))
	s.say("bob", "unlocks")
	return bob.Unlock(context.WithoutCancel(ctx))
}

func (s story) loss(ctx context.Context, alice, bob *locker.Mutex, account *account) error {
	if err := alice.Lock(ctx); err != nil {
		return err
	}
	stale := alice.FencingToken()
	s.say("alice", "holds it again, with token %d, and pauses past her TTL", stale)
	if err := bob.Lock(ctx); err != nil {
		return err
	}
	s.say("bob", "gets it once her TTL is over, with token %d, and writes: %v",
		bob.FencingToken(), account.write(bob.FencingToken(), "by bob"))
	<-alice.Hold().Lost()
	s.say("alice", "wakes and writes, as if she still held it: %v", account.write(stale, "by alice"))
	s.say("alice", "unlocks, and is told: %v", alice.Unlock(context.WithoutCancel(ctx)))
	s.say("bob", "unlocks; the account was last written %s", account.value)
	return bob.Unlock(context.WithoutCancel(ctx))
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// account is a resource that checks fencing tokens: it refuses 0 and any below the largest seen.
type account struct {
	seen  uint64
	value string
}

func (a *account) write(token uint64, value string) string {
	if token == 0 || token < a.seen {
		return "REFUSED, the token is stale"
	}
	a.seen, a.value = token, value
	return "accepted"
}
