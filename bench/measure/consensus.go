package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"
	"go.uber.org/zap"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/etcd"
	"github.com/go-locker/locker/zookeeper"
)

const (
	consensusTTL    = time.Minute
	etcdModule      = "go.etcd.io/etcd/client/v3"
	zooKeeperModule = "github.com/go-zookeeper/zk"
)

var etcdLibraries = []library{
	{"etcd locker", lockerModule, "TTL 1m", consensusTTL, openEtcd},
	{
		"etcd concurrency.Mutex", etcdModule,
		"a session of 1m for each waiter, because two Mutexes of one session would both hold", consensusTTL, openConcurrency,
	},
	{"etcd bare", etcdModule, "no lock: a Txn that puts a key with a lease if the key does not exist, and a Txn that deletes the key if it is still the same", consensusTTL, openBareEtcd},
}

var zooKeeperLibraries = []library{
	{
		"zookeeper locker", lockerModule,
		"TTL and session 1m; the option Tick is set to the servers' tickTime", consensusTTL, openZooKeeper,
	},
	{"zookeeper zk.Lock", zooKeeperModule, "NewLock, session 1m", consensusTTL, openZKLock},
	{
		"zookeeper bare", zooKeeperModule,
		"no lock: an ephemeral sequential node is created, while the children are listed; then it is deleted", consensusTTL, openBareZooKeeper,
	},
}

// newEtcdClient has the settings of those that etcd:// makes.
func newEtcdClient(addrs []string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: addrs, DialTimeout: 5 * time.Second,
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		Logger: zap.NewNop(),
	})
}

func openEtcd(addrs []string, _ *tally, ttl time.Duration) (*client, error) {
	cli, err := newEtcdClient(addrs)
	if err != nil {
		return nil, err
	}
	c, err := etcd.New(cli, locker.WithTTL(ttl))
	if err != nil {
		return nil, errors.Join(err, cli.Close())
	}
	return clientOf(c, func() { _ = cli.Close() }), nil
}

// openConcurrency gives each waiter of one name a session of its own, and waiters of different
// names the same ones.
func openConcurrency(addrs []string, _ *tally, ttl time.Duration) (*client, error) {
	cli, err := newEtcdClient(addrs)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var sessions []*concurrency.Session
	waiters := make(map[string]int)
	next := func(name string) (*concurrency.Session, error) {
		mu.Lock()
		defer mu.Unlock()
		i := waiters[name]
		waiters[name]++
		if i == len(sessions) {
			session, err := concurrency.NewSession(cli, concurrency.WithTTL(int(ttl.Seconds())))
			if err != nil {
				return nil, err
			}
			sessions = append(sessions, session)
		}
		return sessions[i], nil
	}
	return &client{
		waiter: func(name string) lockFunc {
			session, err := next(name)
			if err != nil {
				return func(context.Context) (unlockFunc, error) { return nil, err }
			}
			m := concurrency.NewMutex(session, name)
			return func(ctx context.Context) (unlockFunc, error) { return m.Unlock, m.Lock(ctx) }
		},
		// Shares have no TTL but that of the client's session, and calls no context.
		shared: func(name string) (read, write lockFunc) {
			session, err := next("of all shares")
			of := func(lock, unlock func(*recipe.RWMutex) error) lockFunc {
				return func(context.Context) (unlockFunc, error) {
					if err != nil {
						return nil, err
					}
					m := recipe.NewRWMutex(session, name)
					return func(context.Context) error { return unlock(m) }, lock(m)
				}
			}
			return of((*recipe.RWMutex).RLock, (*recipe.RWMutex).RUnlock),
				of((*recipe.RWMutex).Lock, (*recipe.RWMutex).Unlock)
		},
		close: func() {
			for _, session := range sessions {
				_ = session.Close()
			}
			_ = cli.Close()
		},
	}, nil
}

func openBareEtcd(addrs []string, _ *tally, _ time.Duration) (*client, error) {
	cli, err := newEtcdClient(addrs)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	lease, err := cli.Grant(ctx, int64(time.Hour.Seconds())) // which nobody need keep alive
	if err != nil {
		return nil, errors.Join(err, cli.Close())
	}
	succeed := func(txn clientv3.Txn) (*clientv3.TxnResponse, error) {
		resp, err := txn.Commit()
		if err == nil && !resp.Succeeded {
			err = errors.New("the key is not as expected")
		}
		return resp, err
	}
	return &client{
		waiter: func(name string) lockFunc {
			folder := name + "/"
			key := fmt.Sprintf("%s%x", folder, lease.ID)
			empty := clientv3.Compare(clientv3.CreateRevision(folder), "=", 0).WithPrefix()
			put := clientv3.OpPut(key, "", clientv3.WithLease(lease.ID))
			return func(ctx context.Context) (unlockFunc, error) {
				resp, err := succeed(cli.Txn(ctx).If(empty).Then(put))
				if err != nil {
					return nil, err
				}
				ours := clientv3.Compare(clientv3.CreateRevision(key), "=", resp.Header.Revision)
				return func(ctx context.Context) error {
					_, err := succeed(cli.Txn(ctx).If(ours).Then(clientv3.OpDelete(key)))
					return err
				}, nil
			}
		},
		close: func() { _ = cli.Close() },
	}, nil
}

func openZooKeeper(addrs []string, _ *tally, ttl time.Duration) (*client, error) {
	d, err := zookeeper.NewDriver(addrs, zookeeper.Tick(tick))
	if err != nil {
		return nil, err
	}
	c, err := locker.New(d, locker.WithTTL(ttl))
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return clientOf(c, func() {}), nil
}

var anybody = zk.WorldACL(zk.PermAll)

type silent struct{}

func (silent) Printf(string, ...any) {}

// connectZooKeeper returns when there is a session.
func connectZooKeeper(addrs []string, ttl time.Duration) (*zk.Conn, error) {
	conn, events, err := zk.Connect(addrs, ttl, zk.WithLogger(silent{}))
	if err != nil {
		return nil, err
	}
	for late := time.After(patience); conn.State() != zk.StateHasSession; {
		select {
		case <-events:
		case <-late:
			conn.Close()
			return nil, fmt.Errorf("no session at %v after %v", addrs, patience)
		}
	}
	return conn, nil
}

// openZKLock ignores contexts, for which the recipe has no place.
func openZKLock(addrs []string, _ *tally, ttl time.Duration) (*client, error) {
	conn, err := connectZooKeeper(addrs, ttl)
	if err != nil {
		return nil, err
	}
	return &client{
		waiter: func(name string) lockFunc {
			l := zk.NewLock(conn, "/"+name, anybody)
			unlock := func(context.Context) error { return l.Unlock() }
			return func(context.Context) (unlockFunc, error) { return unlock, l.Lock() }
		},
		close: conn.Close,
	}, nil
}

func openBareZooKeeper(addrs []string, _ *tally, ttl time.Duration) (*client, error) {
	conn, err := connectZooKeeper(addrs, ttl)
	if err != nil {
		return nil, err
	}
	return &client{
		waiter: func(name string) lockFunc {
			dir := "/" + name
			if _, err := conn.Create(dir, nil, 0, anybody); err != nil && !errors.Is(err, zk.ErrNodeExists) {
				return func(context.Context) (unlockFunc, error) { return nil, err }
			}
			return func(context.Context) (unlockFunc, error) {
				listed := make(chan error, 1)
				go func() {
					_, _, err := conn.Children(dir)
					listed <- err
				}()
				node, err := conn.Create(dir+"/lock-", nil, zk.FlagEphemeral|zk.FlagSequence, anybody)
				return func(context.Context) error { return conn.Delete(node, -1) }, errors.Join(err, <-listed)
			}
		},
		close: conn.Close,
	}, nil
}
