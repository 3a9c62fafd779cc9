package script

import (
	"cmp"
	"context"
	"encoding"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Runner is what a client library does with scripts.
type Runner interface {
	// Run makes all calls in one round trip to a server, each by the script's SHA or, with Load, by
	// its source. It puts a reply or an error for each into replies, which are as many, and empty.
	// Nothing of calls and replies is kept.
	Run(ctx context.Context, calls []Call, replies []Reply)
}

// Counter is an argument that counts how often it is written: the client library asks it for its
// value each time. The Runner takes back what the server has answered with an error: a request that
// was refused, or sent on to another server, has done nothing.
type Counter interface {
	encoding.BinaryMarshaler // for go-redis
	RedisArg() any           // for redigo

	// NotRun takes the latest back.
	NotRun()
}

// Run sends all calls in one round trip, each by the SHA of its script. An error that says that a
// call is to be sent in another way is answered once, by one round trip more for all such calls:
//
//	NOSCRIPT   the first call of each script brings its source, and the others come behind it
//	TRYAGAIN   a slot moves, and the keys are not all here: the lock's key alone
//	Again      a batch was lost that the client library does not send again because of another call
//
// What may have run in one pass may have run whatever the next one says (Reply.After): the outcome is
// unknown until a reply proves it.

// Call is a script with its keys, which are all those of one lock, and arguments. There may be a
// Counter among these.
type Call struct {
	Script *Script
	Keys   []any // each a string
	Args   []any
	Load   bool // run by its source

	again bool // sent again, see Reply
}

// Command appends the command that is c, word by word: MostArgs and six at most.
func (c *Call) Command(words []any) []any {
	if c.Load {
		words = append(words, "eval", c.Script.Source, len(c.Keys))
	} else {
		words = append(words, "evalsha", c.Script.SHA, len(c.Keys))
	}
	return append(append(words, c.Keys...), c.Args...)
}

// Reply is a script's reply, or its error.
type Reply struct {
	Value any // an int64, a text as a string or []byte, or a []any of those
	Err   error

	// MayHaveRun, of a script that Takes, is set if it may have run in spite of Err: its reply was
	// lost, and the reply to the client library's retry proves nothing.
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
		RunSome(calls, replies, which, func(some []Call, got []Reply) { r.Run(ctx, some, got) })
	}
}

// RunSome has run make the calls with the indices which, and files the replies.
func RunSome(calls []Call, replies []Reply, which []int, run func(some []Call, got []Reply)) {
	some, got := make([]Call, len(which)), make([]Reply, len(which))
	for n, i := range which {
		some[n] = calls[i]
	}
	run(some, got)
	for n, i := range which {
		replies[i] = got[n].After(replies[i])
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

// IsReadOnly reports whether a script's error is that of a replica, which does not write. Before
// Redis 7 the error tells first that it is of a script.
func IsReadOnly(err string) bool {
	return strings.HasPrefix(err, "READONLY") || strings.Contains(err, ": -READONLY ")
}

// Replicas is how many replicas have to acknowledge a grant. The Runner sends WAIT with the script,
// on the same connection.
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

// Awaited reports whether replicas have to acknowledge what any of calls does.
func (r Replicas) Awaited(calls []Call) bool {
	return r.N > 0 && slices.ContainsFunc(calls, func(c Call) bool { return c.Script.Grants })
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

// Acknowledged takes in the reply to a WAIT, or why there is none: grants among replies that too
// few have acknowledged are errors, though the script has run. What is no grant waits for nobody.
func (r Replicas) Acknowledged(calls []Call, replies []Reply, by int64, unheard error) {
	if unheard != nil {
		by = 0 // what go-redis leaves of a try before
	}
	for i := range replies {
		reply := &replies[i]
		if reply.Err != nil || !calls[i].Script.Grants {
			continue
		}
		if err := r.check(reply.Value, by); err != nil {
			reply.Err, reply.Ran, reply.MayHaveRun = cmp.Or(unheard, err), true, true
		}
	}
}

// check returns an error if reply was a grant that too few have acknowledged.
func (r Replicas) check(reply any, acknowledged int64) error {
	switch r := reply.(type) {
	case []any:
		if len(r) > 0 {
			reply = r[0]
		}
	case string, []byte: // a token
		reply = int64(Granted)
	}
	if reply != any(int64(Granted)) || acknowledged >= int64(r.N) {
		return nil
	}
	return fmt.Errorf("%d of %d replicas have acknowledged within %v", acknowledged, r.N, r.Timeout)
}
