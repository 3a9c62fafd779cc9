package thirdparty

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/go-locker/locker"
)

// newEtcdMutex makes a Mutex for each Lock on a Session that others use too, and that renews itself.
func newEtcdMutex(s *concurrency.Session, name string) locker.Locker {
	take := func(ctx context.Context, try bool) (*hold, error) {
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
	}
	return etcdLocker(take)
}

// newEtcdSessions makes a Session for each Lock, so that a hold has a TTL that nobody renews, and goroutines
// exclude one another.
func newEtcdSessions(cli *clientv3.Client, name string, ttl time.Duration) locker.Locker {
	return etcdLocker(func(ctx context.Context, try bool) (*hold, error) {
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
	})
}

func etcdLocker(take func(ctx context.Context, try bool) (*hold, error)) locker.Locker {
	return trier{&adapter{
		lock: func(ctx context.Context) (*hold, error) { return take(ctx, false) },
		try:  func(ctx context.Context) (*hold, error) { return take(ctx, true) },
	}}
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
