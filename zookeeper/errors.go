package zookeeper

import (
	"context"
	"errors"
	"fmt"
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

// refused says whether err is the server's word, or the library's own, that what was asked has not been done, and will
// not be. Everything else leaves that open.
func refused(err error) bool {
	for _, e := range []error{
		zk.ErrNoNode, zk.ErrNoAuth, zk.ErrBadVersion, zk.ErrNoChildrenForEphemerals, zk.ErrNodeExists, zk.ErrNotEmpty,
		zk.ErrInvalidACL, zk.ErrInvalidFlags, zk.ErrInvalidPath, zk.ErrAuthFailed, zk.ErrBadArguments, zk.ErrSessionExpired,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// final says whether err is an answer that asking again does not change.
func final(err error) bool {
	for _, e := range []error{errSessionEnded, errNumbered, driver.ErrUnsupported, driver.ErrClosed} {
		if errors.Is(err, e) {
			return true
		}
	}
	return refused(err)
}

// asLost is err for the holder of a lease.
func asLost(err error) error {
	if errors.Is(err, errSessionEnded) {
		return fmt.Errorf("%w: %w", driver.ErrLost, err)
	}
	return err
}

// firstPatience is how long a request may take before it counts as failing.
func firstPatience(ttl time.Duration) time.Duration {
	return min(max(ttl/16, 150*time.Millisecond), 2*time.Second)
}

// newOutage rides out an outage for a call.
func newOutage(ttl time.Duration, answered func(error)) *outage.Outage {
	return &outage.Outage{
		TTL: ttl, Answered: answered, Patience: firstPatience(ttl),
		Within: context.WithTimeout, Explain: explain(nil), Final: final, Silence: errNoAnswer,
	}
}

func unheard(error) {}

// explain makes an error of one of a request that was made under rctx, within ctx. trouble, unless it is nil, is what is wrong
// with the connection, if that is known.
func explain(trouble func() error) func(ctx, rctx context.Context, err error) error {
	return func(ctx, rctx context.Context, err error) error {
		if err == nil || ctx.Err() != nil || rctx.Err() == nil || !errors.Is(err, rctx.Err()) {
			return err
		}
		// Without err itself: the caller's context has not ended, and the error must not match its error.
		if trouble != nil {
			if why := trouble(); why != nil {
				return why
			}
		}
		return errNoAnswer
	}
}
