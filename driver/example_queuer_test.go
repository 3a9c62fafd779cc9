package driver_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-locker/locker/driver"
)

// queueServer is a backend with a queue. Each of its requests may fail.
type queueServer interface {
	// ask puts the ticket into the queue of the name, unless it is there already, and returns its token once its turn has come, else 0.
	ask(ctx context.Context, name, ticket string, ttl time.Duration) (token uint64, err error)
	// wait returns when the ticket may have come to its turn, or ctx ends.
	wait(ctx context.Context, ticket string)
	// leave removes the ticket, whether it waits or holds.
	leave(ctx context.Context, name, ticket string) error
}

// queueDriver is a Queuer over such a server.
type queueDriver struct {
	driver.Driver // Acquire, Guarantees and Close
	server        queueServer
	newTicket     func() string
}

func (d *queueDriver) AcquireQueued(ctx context.Context, req driver.Request, answered func(error)) (driver.Lease, error) {
	ticket := d.newTicket()
	leave := driver.Cleanup(func(ctx context.Context) error { return d.server.leave(ctx, req.Name, ticket) })
	var failing time.Time // when the first request was sent that has failed since the last answer
	for ctx.Err() == nil {
		sent, patience := time.Now(), req.TTL/2
		if !failing.IsZero() {
			patience -= sent.Sub(failing)
		}
		rctx, cancel := context.WithTimeout(ctx, patience)
		token, err := d.server.ask(rctx, req.Name, ticket, req.TTL)
		cancel()
		switch {
		case err == nil && token > 0: // granted
			return &queueLease{leave: leave, token: token, until: sent.Add(req.TTL)}, nil
		case err == nil: // an answer
			answered(driver.ErrHeld)
			failing = time.Time{}
			look, cancel := context.WithTimeout(ctx, req.TTL/2) // at times, for what wakes us may be lost
			d.server.wait(look, ticket)
			cancel()
		case ctx.Err() == nil: // a failure
			answered(err)
			if failing.IsZero() {
				failing = sent
			}
			pause := req.TTL / 100
			if time.Since(failing)+pause >= req.TTL/2 {
				return leave, err
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
	}
	return leave, ctx.Err()
}

// queueLease is a grant. What releases it is what leaves the queue.
type queueLease struct {
	leave driver.Cleanup
	token uint64
	until time.Time
}

func (l *queueLease) Token() uint64                     { return l.token }
func (l *queueLease) Validity() time.Duration           { return time.Until(l.until) }
func (l *queueLease) Release(ctx context.Context) error { return l.leave(ctx) }

func (l *queueLease) Extend(context.Context, time.Duration) error {
	return errors.New("left out here")
}

// script is a server that answers as told.
type script struct{ answers []func() (uint64, error) }

func (s *script) ask(context.Context, string, string, time.Duration) (uint64, error) {
	answer := s.answers[0]
	s.answers = s.answers[1:]
	return answer()
}
func (s *script) wait(context.Context, string) { fmt.Println("waits") }
func (s *script) leave(_ context.Context, _, ticket string) error {
	fmt.Println(ticket, "leaves")
	return nil
}

// A failure is ridden out, and counts from the request that failed first.
func ExampleQueuer() {
	held := func() (uint64, error) { return 0, nil }
	fails := func() (uint64, error) { return 0, errors.New("connection refused") }
	granted := func() (uint64, error) { return 7, nil }
	d := &queueDriver{server: &script{answers: []func() (uint64, error){held, fails, held, granted}}, newTicket: func() string { return "ticket 1" }}
	lease, err := d.AcquireQueued(context.Background(), driver.Request{Name: "locker:orders/42", TTL: time.Second}, func(err error) {
		fmt.Println("answered:", err)
	})
	fmt.Println("token", lease.Token(), err)
	fmt.Println(lease.Release(context.Background()))
	// Output:
	// answered: the lock is held by another owner
	// waits
	// answered: connection refused
	// answered: the lock is held by another owner
	// waits
	// token 7 <nil>
	// ticket 1 leaves
	// <nil>
}
