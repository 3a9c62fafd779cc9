package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/outage"
)

// errSessionEnded: the session is gone, or may be by now, and with it all that was on it.
var errSessionEnded = errors.New("the ZooKeeper session ended")

// errRemoved: the session is there, and our node is not.
var errRemoved = errors.New("somebody removed our node from the queue")

// errNoAnswer: what the server has done is not known.
var errNoAnswer = error(outage.NoAnswer("ZooKeeper has not answered in time"))

// errUnreachable: there was no connection to any server.
var errUnreachable = errors.New("no ZooKeeper server is connected")

// answers are the server's word, or the library's own, that what was asked has not been done, and will not be.
var answers = []error{
	zk.ErrNoNode, zk.ErrNoAuth, zk.ErrBadVersion, zk.ErrNoChildrenForEphemerals, zk.ErrNodeExists, zk.ErrNotEmpty,
	zk.ErrInvalidACL, zk.ErrInvalidFlags, zk.ErrInvalidPath, zk.ErrAuthFailed, zk.ErrBadArguments, zk.ErrSessionExpired,
}

func isAny(err error, of ...error) bool {
	return slices.ContainsFunc(of, func(e error) bool { return errors.Is(err, e) })
}

// refused reports whether what was asked has not been done, and will not be. Every error but answers leaves that open.
func refused(err error) bool { return isAny(err, answers...) }

// final reports whether err is an answer that asking again does not change.
func final(err error) bool {
	return refused(err) || isAny(err, errSessionEnded, driver.ErrUnsupported, driver.ErrClosed)
}

// asLost returns err for the holder of a lease.
func asLost(err error) error {
	if errors.Is(err, errSessionEnded) {
		return fmt.Errorf("%w: %w", driver.ErrLost, err)
	}
	return err
}

// unanswered returns err, and if that is the end of ctx also what is wrong with the connection.
func (d *Driver) unanswered(ctx context.Context, ttl time.Duration, err error) error {
	over := ctx.Err()
	if over == nil || !errors.Is(err, over) {
		return err
	}
	if why := d.failure(ttl); why != nil {
		return unansweredError{why, over}
	}
	return err
}

type unansweredError struct{ why, over error }

func (e unansweredError) Error() string   { return e.why.Error() }
func (e unansweredError) Unwrap() []error { return []error{e.why, e.over} }

// outage rides out an outage for a call.
func (d *Driver) outage(ttl time.Duration) *outage.Outage {
	return newOutage(ttl, func() error { return d.failure(ttl) })
}

// newOutage is outage with a failure of its own, which returns what is wrong with the connection,
// or nil if that is not known. A request is not given up before the library gives up its
// connection: a second one would be answered after it.
func newOutage(ttl time.Duration, failure func() error) *outage.Outage {
	return &outage.Outage{
		TTL: ttl, Answered: func(error) {}, Patience: ttl,
		Within: context.WithTimeout, Final: final, Silence: errNoAnswer,
		Explain: func(ctx, rctx context.Context, err error) error {
			if err == nil || ctx.Err() != nil || rctx.Err() == nil || !errors.Is(err, rctx.Err()) {
				return err
			}
			// Without err itself: the caller's context has not ended, and the error must not match its error.
			return cmp.Or(failure(), errNoAnswer)
		},
	}
}
