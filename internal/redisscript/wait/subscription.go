package wait

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrNoSubscriptions is the error of subscriptions that will not be had by trying again soon: the
// user has no right, or the server or the client library does not know them.
var ErrNoSubscriptions = errors.New("no subscriptions")

// Refusal returns answer, a server's error reply to a subscription, as an ErrNoSubscriptions if
// there will be none.
func Refusal(answer error) error {
	for _, prefix := range []string{"NOPERM", "ERR unknown command"} {
		if strings.HasPrefix(answer.Error(), prefix) {
			return fmt.Errorf("%w: %w", ErrNoSubscriptions, answer)
		}
	}
	return answer
}

// Runner is what subscribes: a client library.
type Runner interface {
	// Locate returns the server that publishes about key. It returns ErrNoSubscriptions where
	// subscriptions are not to be had.
	Locate(ctx context.Context, key string) (Publisher, error)

	// Sharded reports whether channels are those of SSUBSCRIBE, as they are in a Redis Cluster.
	Sharded() bool
}

// Publisher is a server that publishes.
type Publisher struct {
	Name string // the same for the same server
	Dial func(ctx context.Context) (Subscription, error)
}

// Subscription is a connection for subscriptions alone. Receive is called by one goroutine, the
// other methods by any.
type Subscription interface {
	Subscribe(ctx context.Context, channels ...string) error
	Unsubscribe(ctx context.Context, channels ...string) error
	Ping(ctx context.Context) error

	// Receive waits for what comes next, for at most timeout. An error ends the connection; it
	// matches ErrNoSubscriptions if the server refuses subscriptions.
	Receive(timeout time.Duration) (Event, error)

	// Close ends Receive too.
	Close() error
}

// Event is what a Subscription receives.
type Event struct {
	Kind    EventKind
	Channel string
	Message string
}

// EventKind is what has happened.
type EventKind int

// The kinds of events.
const (
	Other        EventKind = iota // a pong
	Message                       // Message was published on Channel
	Subscribed                    // Channel is subscribed to from here on
	Unsubscribed                  // and no longer, be it that its slot has moved away
)
