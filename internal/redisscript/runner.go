package redisscript

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Runner is what the protocol needs of a client library.
type Runner interface {
	// Run makes all calls in one round trip to a server, each by the script's SHA or, with Load, by
	// its source. It puts a reply or an error for each into replies, which are as many, and empty.
	// Nothing of calls and replies is kept.
	Run(ctx context.Context, calls []Call, replies []Reply)

	// AtOnce returns how many requests may be in flight where all go to one address: those of
	// several goroutines share round trips. It returns 0 where each request goes by itself.
	AtOnce() int

	// HeedsDeadlines reports whether Run returns soon after the deadline of its context. It need not
	// return when that is cancelled.
	HeedsDeadlines() bool

	// Locate returns the server that publishes about key. It returns ErrNoSubscriptions where
	// subscriptions are not to be had.
	Locate(ctx context.Context, key string) (Publisher, error)

	// Scans returns a Scan of each server that has locks.
	Scans(ctx context.Context) ([]Scan, error)

	// Sharded reports whether channels are those of SSUBSCRIBE, as they are in a Redis Cluster.
	Sharded() bool
}

// MostAtOnce is what AtOnce returns at most: a second batch is on its way while the server works on
// the first.
const MostAtOnce = 2

// Counter is an argument that counts how often it is written: the client library asks it for its
// value each time. The Runner takes back what the server has answered with an error: a request that
// was refused, or sent on to another server, has done nothing.
type Counter interface {
	encoding.BinaryMarshaler // for go-redis
	RedisArg() any           // for redigo

	// NotRun takes the latest back.
	NotRun()
}

// Call is a script with its keys, which are all those of one lock, and arguments. There may be a
// Counter among these.
type Call struct {
	Script *Script
	Keys   []any // each a string
	Args   []any
	Load   bool // run by its source

	again bool // sent again, see Reply
}

// Reply is a script's reply, or its error.
type Reply struct {
	Value any // an int64, a text as a string or []byte, or a []any of those
	Err   error

	// MayHaveRun, of a script that Takes, is set if it may have run in spite of Err: its reply was
	// lost, and what the client library was told when it tried again proves nothing.
	MayHaveRun bool

	Ran   bool // in spite of Err: too few replicas have acknowledged what it did
	Again bool // may be sent again, once, which the client library has not done
}

// After returns r, as the reply to a call that was sent before, and had the reply earlier.
func (r Reply) After(earlier Reply) Reply {
	r.MayHaveRun = r.Err != nil && (r.MayHaveRun || earlier.MayHaveRun)
	return r
}

// Run makes calls through r, in one round trip unless something is in the way.
func Run(ctx context.Context, r Runner, calls []Call, replies []Reply) {
	r.Run(ctx, calls, replies)
	for which := again(calls, replies); len(which) > 0; which = again(calls, replies) {
		some, got := make([]Call, len(which)), make([]Reply, len(which))
		for n, i := range which {
			some[n] = calls[i]
		}
		r.Run(ctx, some, got)
		for n, i := range which {
			replies[i] = got[n].After(replies[i])
		}
	}
}

// again returns the indices of the calls that are to be sent again, and changes them. A server that
// has lost a script gets it with the first call of it that it refused, and the others again behind
// that one. A lock whose slot moves goes without its queue, which may be elsewhere.
func again(calls []Call, replies []Reply) (which []int) {
	var given []*Script
	for i := range calls {
		c, err := &calls[i], replies[i].Err
		switch {
		case err == nil:
			continue
		case strings.HasPrefix(err.Error(), "NOSCRIPT") && !c.Load:
			if !slices.Contains(given, c.Script) {
				given, c.Load = append(given, c.Script), true
			}
		case strings.HasPrefix(err.Error(), "TRYAGAIN") && c.Script.Queue && len(c.Keys) > 1:
			c.Keys = c.Keys[:1]
		case replies[i].Again && !c.again:
			c.again = true
		default:
			continue
		}
		which = append(which, i)
	}
	return which
}

// Replicas is how many replicas have to acknowledge what a script grants. A Runner that is told so
// sends WAIT with the script, on the same connection.
type Replicas struct {
	N       int
	Timeout time.Duration
}

// NewReplicas returns n replicas and how long they have, or an error if that cannot be asked of a
// server.
func NewReplicas(n int, timeout time.Duration) (Replicas, error) {
	switch {
	case n < 1:
		return Replicas{}, fmt.Errorf("WaitReplicas for %d replicas: must be at least 1", n)
	case timeout <= 0 || timeout%time.Millisecond != 0:
		return Replicas{}, fmt.Errorf("WaitReplicas for %v: must be whole milliseconds, and above 0", timeout)
	default:
		return Replicas{N: n, Timeout: timeout}, nil
	}
}

// Within returns r for a WAIT that is sent now. A quarter of what is left of ctx is for the answer
// to come back. WAIT 0 would be for ever.
func (r Replicas) Within(ctx context.Context) Replicas {
	if deadline, ok := ctx.Deadline(); ok {
		left := max(time.Until(deadline)*3/4, time.Millisecond)
		r.Timeout = min(r.Timeout, left.Truncate(time.Millisecond))
	}
	return r
}

// Check returns an error if reply, of a script that Grants, was a grant that too few have
// acknowledged. The script has run.
func (r Replicas) Check(reply any, acknowledged int64) error {
	switch r := reply.(type) {
	case []any:
		if len(r) > 0 {
			reply = r[0]
		}
	case string, []byte: // a token
		reply = int64(granted)
	}
	if reply != any(int64(granted)) || acknowledged >= int64(r.N) {
		return nil
	}
	return fmt.Errorf("%d of %d replicas have acknowledged within %v", acknowledged, r.N, r.Timeout)
}

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

// IsReadOnly reports whether a script's error is that of a replica, which does not write. Before
// Redis 7 the error tells first that it is of a script.
func IsReadOnly(err string) bool {
	return strings.HasPrefix(err, "READONLY") || strings.Contains(err, ": -READONLY ")
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
