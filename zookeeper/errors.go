package zookeeper

import (
	"errors"
	"fmt"
	"slices"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/noanswer"
)

// errSessionEnded: the session is gone, or may be by now, and with it all that was on it.
var errSessionEnded = errors.New("the ZooKeeper session ended")

// errRemoved: the session is there, and our node is not.
var errRemoved = errors.New("somebody removed our node from the queue")

// errNoAnswer: what the server has done is not known.
var errNoAnswer = error(noanswer.Error("ZooKeeper has not answered in time"))

// errUnreachable: there was no connection to any server.
var errUnreachable = errors.New("no ZooKeeper server is connected")

func isAny(err error, of ...error) bool {
	return slices.ContainsFunc(of, func(e error) bool { return errors.Is(err, e) })
}

// asLost returns err for the holder of a lease.
func asLost(err error) error {
	if errors.Is(err, errSessionEnded) {
		return fmt.Errorf("%w: %w", driver.ErrLost, err)
	}
	return err
}
