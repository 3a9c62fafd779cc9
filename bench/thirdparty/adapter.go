// Package thirdparty puts the locks of other libraries through the conformance suite of this module, and keeps what
// it found: [Libraries] lists where each of them does otherwise than the contract of [locker.Locker] says, why, and
// what shows it: a scenario, or a test with nothing but the library and a real server.
//
// The adapters are what a user would write in an afternoon: with the options that a library's documentation
// recommends, an object of the library for each Lock where one cannot be shared, and a mutex around what the adapter
// itself keeps. Where a library can be made to look better by its own means, it is. What a library does not have
// (TryLock, a deadline) is not invented, and the suite skips it; what the contract cannot do without (a fencing
// token, Extend, a TTL) is answered as well as the library allows.
//
// The suite requires that each deterministic deviation is one, and each library is the version in go.mod: when a
// release repairs something, its finding has to go.
package thirdparty

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/go-zookeeper/zk"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/go-locker/locker"
)

// adapter is a locker.Locker over a library that grants holds. It does what its user would have to do: it keeps the
// current hold, guards it, and says what the library says in the words of the contract.
type adapter struct {
	// take waits for the lock, or makes one attempt.
	take func(ctx context.Context, try bool) (*hold, error)

	mu   sync.Mutex
	held *hold // nil without one
}

// hold is what a library gives to a holder.
type hold struct {
	extend, release func(context.Context) error
	lost            func() bool      // what the library knows without a request; nil if it never does
	until           func() time.Time // when it expires; nil if the library does not say
	token           uint64           // 0 if it has none

	gone atomic.Bool // a request said so
}

func (h *hold) isLost() bool { return h.gone.Load() || h.lost != nil && h.lost() }

// Lock waits until the lock is held, or ctx ends.
func (a *adapter) Lock(ctx context.Context) error { return a.acquire(ctx, false) }

func (a *adapter) acquire(ctx context.Context, try bool) error {
	if h := a.current(); h != nil && h.isLost() {
		return locker.ErrLost
	}
	h, err := a.take(ctx, try)
	if err != nil {
		return interrupted(ctx, err)
	}
	a.mu.Lock()
	old := a.held
	if old == nil {
		a.held = h
	}
	a.mu.Unlock()
	if old == nil {
		return nil
	}
	old.gone.Store(true) // it was granted once more before its Unlock
	return errors.Join(locker.ErrLost, h.release(ctx))
}

// interrupted adds why ctx ended.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return errors.Join(err, ctx.Err(), context.Cause(ctx))
}

func (a *adapter) current() *hold {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.held
}

// Unlock ends the hold.
func (a *adapter) Unlock(ctx context.Context) error {
	a.mu.Lock()
	h := a.held
	a.held = nil
	a.mu.Unlock()
	if h == nil {
		return locker.ErrNotHeld
	}
	lost := h.isLost() // before its own release may make it look so
	err := h.release(ctx)
	if lost {
		return locker.ErrLost
	}
	return interrupted(ctx, err)
}

// Extend makes the hold last one TTL from now.
func (a *adapter) Extend(ctx context.Context) error {
	h := a.current()
	switch {
	case h == nil:
		return locker.ErrNotHeld
	case h.isLost():
		return locker.ErrLost
	}
	err := h.extend(ctx)
	if errors.Is(err, locker.ErrLost) {
		h.gone.Store(true)
	}
	return err
}

// FencingToken is the library's, if it has one.
func (a *adapter) FencingToken() uint64 {
	h := a.current()
	if h == nil || h.isLost() {
		return 0
	}
	return h.token
}

// trier is an adapter whose library has something like TryLock.
type trier struct{ adapter }

// TryLock makes one attempt.
func (t *trier) TryLock(ctx context.Context) error { return t.acquire(ctx, true) }

// Languages of the libraries that are judged as programs.
const (
	Python     = "Python"
	JavaScript = "JavaScript"
	Shell      = "shell"
)

// Programs are the locks of other languages that were put through the suite, each by an adapter in the folder adapters that speaks the
// protocol of docs/evidence/judge-any-language.md. What they run on is unpacked by tools/adapters.sh.
func Programs() []Library {
	return []Library{
		{
			Name: "redis-py", Language: Python, Release: "4.3.4", Test: "TestProgram_redispy", Findings: redispyFindings,
			Settings: "Lock with the TTL as its timeout, sleep 0.1 s; extend with replace_ttl",
		},
		{
			Name: "kazoo", Language: Python, Release: "2.8.0", Test: "TestProgram_kazoo", Findings: kazooFindings,
			Settings: "the TTL is the session's timeout; a listener tells of a session that is lost",
		},
		{
			Name: "redlock (npm)", Language: JavaScript, Release: "5.0.0-beta.2", Test: "TestProgram_redlock", Findings: npmRedlockFindings,
			Settings: "one node; acquire with retryCount 0; all other settings are the defaults; ioredis",
		},
		{
			Name: "etcd3 (npm)", Language: JavaScript, Release: "1.1.2", Test: "TestProgram_etcd3", Findings: npmEtcd3Findings,
			Settings: "a lease of the TTL, in whole seconds",
		},
		{
			Name: "flock(1)", Language: Shell, Release: "util-linux", Test: "TestProgram_flock", Findings: flockFindings,
			Settings: "a file for each name, on one machine; no server",
		},
	}
}

var redispyFindings = []Finding{
	{
		Cause:     "a Lock does not measure its TTL: only the server tells it that a hold has ended; if acquire is called on the same object after a loss, it takes a new hold, and does not report the loss",
		Scenarios: []string{lostAwaits, cutOff},
	},
	{
		Cause:     "the TTL counts from when SET arrives: a SET that arrives late holds the lock for a whole TTL, though its acquire has failed",
		Scenarios: []string{takeTooLate, takeItself},
	},
}

var kazooFindings = []Finding{
	{
		Cause:     "a Lock that is cancelled raises CancelledError, which does not tell whether another has the lock",
		Scenarios: []string{waitSaysHeld},
	},
	{
		Cause: "acquire and release wait for the connection, whatever timeout and cancel() say: these have an effect only while the lock waits for the contender ahead of it in the queue",
		Scenarios: []string{
			unlockUnanswered, takeUnanswered, unlockNext, silentLock, silentFirst, silentTryLock, cancelledUnlock, silentTrace, silentUnlock, downLock,
		},
		Sometimes: []string{"the lock can be taken after a restart"},
	},
	{
		Cause:     "a Lock does not check its session: a listener is told of a loss only when the client has a connection again, and is_acquired does not change",
		Scenarios: slices.Concat(histories[1:], []string{stoppedHistory}), Repro: "TestRepro_kazoo_isAcquiredStays",
	},
}

var npmRedlockFindings = []Finding{{
	Cause:     "the TTL counts from when the script arrives: a script that arrives late holds the lock for a whole TTL, though its acquire has failed",
	Scenarios: []string{takeTooLate},
}}

var npmEtcd3Findings = []Finding{
	{
		Cause:     "acquire takes no time limit and cannot be cancelled, and a request that was not answered is sent again on another connection",
		Scenarios: []string{takeLate, takeTooLate},
	},
	{
		Cause:     "a Lock does not report that its lease is lost: the caller learns of the loss only if release fails, and sometimes release succeeds in spite of the loss",
		Scenarios: slices.Concat(histories[1:], []string{stoppedHistory}), Repro: "TestRepro_npmEtcd3_doesNotTellOfALoss",
	},
}

var flockFindings []Finding

// newEtcdMutex makes a Mutex for each Lock on a Session that others use too, and that renews itself.
func newEtcdMutex(s *concurrency.Session, name string) locker.Locker {
	return &trier{adapter{take: func(ctx context.Context, try bool) (*hold, error) {
		m := concurrency.NewMutex(s, name)
		if err := lockEtcd(ctx, m, try); err != nil {
			return nil, err
		}
		h := etcdHold(s, m)
		h.lost = func() bool {
			select {
			case <-s.Done():
				return true
			default:
				return false
			}
		}
		return h, nil
	}}}
}

// newEtcdSessions makes a Session for each Lock, so that a hold has a TTL that nobody renews, and goroutines
// exclude one another.
func newEtcdSessions(cli *clientv3.Client, name string, ttl time.Duration) locker.Locker {
	return &trier{adapter{take: func(ctx context.Context, try bool) (*hold, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		life, end := context.WithCancel(cli.Ctx())
		stop := context.AfterFunc(ctx, end) // until the lock is held
		s, err := concurrency.NewSession(cli, concurrency.WithTTL(int(ttl.Seconds())), concurrency.WithContext(life))
		if err != nil {
			end()
			return nil, err
		}
		m := concurrency.NewMutex(s, name)
		err = lockEtcd(ctx, m, try)
		if err == nil {
			// No renewal, and from now a whole TTL. Whether the lock is held is for the Mutex to say.
			s.Orphan()
			_, _ = cli.KeepAliveOnce(ctx, s.Lease())
		}
		if err == nil && !stop() {
			err = ctx.Err()
		}
		if err != nil {
			end()
			go revoke(cli, s.Lease(), ttl)
			return nil, err
		}
		h := etcdHold(s, m)
		unlock := h.release
		h.release = func(ctx context.Context) error {
			err := unlock(ctx)
			end()
			go revoke(cli, s.Lease(), ttl)
			return err
		}
		return h, nil
	}}}
}

func lockEtcd(ctx context.Context, m *concurrency.Mutex, try bool) error {
	lock := m.Lock
	if try {
		lock = m.TryLock
	}
	err := lock(ctx)
	if errors.Is(err, concurrency.ErrLocked) {
		return fmt.Errorf("%w: %w", locker.ErrHeld, err)
	}
	return err
}

func etcdHold(s *concurrency.Session, m *concurrency.Mutex) *hold {
	return &hold{
		token: uint64(m.Header().Revision),
		extend: func(ctx context.Context) error {
			_, err := s.Client().KeepAliveOnce(ctx, s.Lease())
			if errors.Is(err, rpctypes.ErrLeaseNotFound) {
				return fmt.Errorf("%w: %w", locker.ErrLost, err)
			}
			return err
		},
		release: m.Unlock,
	}
}

// revoke is what Session.Close does, where the session's own ctx has not ended. The owner of a session does
// not look at the error either.
func revoke(cli *clientv3.Client, lease clientv3.LeaseID, limit time.Duration) {
	ctx, cancel := context.WithTimeout(cli.Ctx(), limit)
	defer cancel()
	_, _ = cli.Revoke(ctx, lease)
}

// newZkLock makes a Lock object for each Lock: it has no guard against two goroutines, and no two holds. Its hold
// has no TTL but that of the session, which goes on for as long as the process: without renewal a timer ends it.
func newZkLock(conn *zk.Conn, name string, ttl time.Duration, renew bool) locker.Locker {
	path := "/locks/of-" + url.PathEscape(name) // the prefix is for names that no part of a path may have, such as "."
	return &adapter{take: func(ctx context.Context, _ bool) (*hold, error) {
		if name == "" || !utf8.ValidString(name) {
			return nil, errors.New("the name is empty, or not UTF-8")
		}
		l := zk.NewLock(conn, path, zk.WorldACL(zk.PermAll))
		locked := make(chan error, 1)
		go func() { locked <- l.Lock() }()
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
