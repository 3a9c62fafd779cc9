package thirdparty

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker"
)

// newZkLock makes a Lock object for each Lock: it has no guard against two goroutines, and no two holds. Its hold
// has no TTL but that of the session, which goes on for as long as the process: without renewal a timer ends it.
func newZkLock(conn *zk.Conn, name string, ttl time.Duration, renew bool) locker.Locker {
	path := "/locks/of-" + url.PathEscape(name) // the prefix is for names that no part of a path may have, such as "."
	once := func(ctx context.Context) (*hold, error) {
		l := zk.NewLock(conn, path, zk.WorldACL(zk.PermAll))
		locked := start(l.Lock)
		select {
		case err := <-locked:
			if err != nil {
				return nil, err
			}
		case <-ctx.Done(): // it cannot be told, and goes on waiting
			go func() {
				if <-locked == nil {
					zkUnlock(l)
				}
			}()
			return nil, ctx.Err()
		}
		return zkHold(l, ttl, renew), nil
	}
	return &adapter{lock: func(ctx context.Context) (*hold, error) {
		if name == "" || !utf8.ValidString(name) {
			return nil, errors.New("the name is empty, or not UTF-8")
		}
		return once(ctx)
	}}
}

func zkHold(l *zk.Lock, ttl time.Duration, renew bool) *hold {
	var ended atomic.Bool
	expiry := time.AfterFunc(ttl, func() {
		if !ended.Swap(true) {
			zkUnlock(l)
		}
	})
	if renew {
		expiry.Stop()
	}
	return &hold{
		extend: func(context.Context) error {
			if !renew && !expiry.Reset(ttl) {
				expiry.Stop()
				return locker.ErrLost
			}
			return nil
		},
		release: func(ctx context.Context) error {
			expiry.Stop()
			if ended.Swap(true) {
				return locker.ErrLost
			}
			select {
			case err := <-zkUnlock(l):
				if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrSessionExpired) {
					return fmt.Errorf("%w: %w", locker.ErrLost, err)
				}
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		},
		lost: ended.Load,
	}
}

// zkUnlock says what the first Unlock says. One that fails leaves the node, which its session keeps: it is called until
// the node, or the connection, is no more.
func zkUnlock(l *zk.Lock) <-chan error {
	first := make(chan error, 1)
	go func() {
		err := l.Unlock()
		first <- err
		for err != nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrClosing) {
			time.Sleep(20 * time.Millisecond)
			err = l.Unlock()
		}
	}()
	return first
}

// start calls f, which heeds no ctx.
func start(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}
