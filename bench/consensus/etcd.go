package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/wire"
	"github.com/go-locker/locker/etcd"
)

const etcdModule = "go.etcd.io/etcd/client/v3"

var etcdLibraries = contend.Libraries{
	{Name: "etcd locker", Module: "github.com/go-locker/locker", Settings: "TTL 1m", TTL: usualTTL, Open: openEtcd},
	{
		Name: "etcd concurrency.Mutex", Module: etcdModule, TTL: usualTTL, Open: openConcurrency,
		Settings: "a session of 1m for each waiter, because two Mutexes of one session would both hold",
	},
	{
		Name: "etcd bare", Module: etcdModule, TTL: usualTTL, Open: openBareEtcd,
		Settings: "no lock: a Txn that puts a key with a lease if the key does not exist, and a Txn that deletes the key if it is still the same",
	},
}

// newEtcdClient has the settings of those that etcd:// makes.
func newEtcdClient(addrs []string, sent *wire.Tally) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: addrs, DialTimeout: 5 * time.Second,
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		Logger: zap.NewNop(), DialOptions: sent.GRPC(),
	})
}

func openEtcd(addrs []string, sent *wire.Tally, ttl time.Duration) (*contend.Client, error) {
	cli, err := newEtcdClient(addrs, sent)
	if err != nil {
		return nil, err
	}
	c, err := etcd.New(cli, locker.WithTTL(ttl))
	if err != nil {
		return nil, errors.Join(err, cli.Close())
	}
	return lockerClient(c, func() { _ = cli.Close() }), nil
}

// lockerClient is a Client of ours on a connection that is closed after it.
func lockerClient(c *locker.Client, closeConn func()) *contend.Client {
	return &contend.Client{
		Waiter: func(name string) contend.LockFunc {
			m := c.Mutex(name)
			return func(ctx context.Context) (contend.UnlockFunc, error) { return m.Unlock, m.Lock(ctx) }
		},
		Close: func() { _ = c.Close(); closeConn() },
	}
}

// sessions gives each waiter of one name a session of its own, and waiters of different names the same ones.
type sessions struct {
	cli *clientv3.Client
	ttl time.Duration

	mu      sync.Mutex
	all     []*concurrency.Session
	waiters map[string]int
}

func (s *sessions) next(name string) (*concurrency.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.waiters[name]
	s.waiters[name]++
	if i == len(s.all) {
		session, err := concurrency.NewSession(s.cli, concurrency.WithTTL(int(s.ttl.Seconds())))
		if err != nil {
			return nil, err
		}
		s.all = append(s.all, session)
	}
	return s.all[i], nil
}

func openConcurrency(addrs []string, sent *wire.Tally, ttl time.Duration) (*contend.Client, error) {
	cli, err := newEtcdClient(addrs, sent)
	if err != nil {
		return nil, err
	}
	s := sessions{cli: cli, ttl: ttl, waiters: make(map[string]int)}
	return &contend.Client{
		Waiter: func(name string) contend.LockFunc {
			session, err := s.next(name)
			if err != nil {
				return func(context.Context) (contend.UnlockFunc, error) { return nil, err }
			}
			m := concurrency.NewMutex(session, name)
			return func(ctx context.Context) (contend.UnlockFunc, error) { return m.Unlock, m.Lock(ctx) }
		},
		Close: func() {
			for _, session := range s.all {
				_ = session.Close()
			}
			_ = cli.Close()
		},
	}, nil
}

func openBareEtcd(addrs []string, sent *wire.Tally, _ time.Duration) (*contend.Client, error) {
	cli, err := newEtcdClient(addrs, sent)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	lease, err := cli.Grant(ctx, int64(time.Hour.Seconds())) // which nobody need keep alive
	if err != nil {
		return nil, errors.Join(err, cli.Close())
	}
	return &contend.Client{
		Waiter: func(name string) contend.LockFunc {
			folder := name + "/"
			key := fmt.Sprintf("%s%x", folder, lease.ID)
			empty := clientv3.Compare(clientv3.CreateRevision(folder), "=", 0).WithPrefix()
			put := clientv3.OpPut(key, "", clientv3.WithLease(lease.ID))
			return func(ctx context.Context) (contend.UnlockFunc, error) {
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
		Close: func() { _ = cli.Close() },
	}, nil
}

func succeed(txn clientv3.Txn) (*clientv3.TxnResponse, error) {
	resp, err := txn.Commit()
	if err == nil && !resp.Succeeded {
		err = errors.New("the key is not as expected")
	}
	return resp, err
}
