package etcd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/noanswer"
	"github.com/go-locker/locker/internal/sessions"
)

const (
	retriesPerTTL = 24 // a renewal that failed is sent again after TTL/24
	farewell      = 700 * time.Millisecond
	maxTombstones = 64
	maxHolders    = 1000 // that a session remembers
)

// session is a lease of etcd, which all contenders of one TTL share. It implements
// [sessions.Backend].
//
// It lasts for one TTL from when the latest renewal was sent that was answered; the leader counts from
// when it applies the renewal, which is later. A new leader gives each lease a full TTL. A renewal that
// is answered only after the session has ended by our clock does not revive it (confirm). Lost reply
// to a renewal: it counts for nothing, and is repeated. Lost reply to a grant: see Start.
type session struct {
	*sessions.Session[*entry]

	driver *backend
	id     clientv3.LeaseID
	prefix string // of the anchor, see Start

	looking chan struct{} // full while a share reads all others
	watcher *watcher

	mu         sync.Mutex // guards what follows
	until      time.Time  // of package clock
	due        time.Time  // when to renew it
	tombstones int
	shares     map[string][]knownShare     // by folder, the latest that was settled last
	settling   map[string]chan struct{}    // by folder, closed when the first share's attempt ends
	owners     []string                    // that are free to be reused
	holders    map[string]*mvccpb.KeyValue // by folder: the oldest key of a queue, as a TryLock has found it
}

// newSession returns a session whose anchor begins with prefix.
func newSession(d *backend, ttl time.Duration, prefix string) *session {
	s := &session{driver: d, prefix: prefix, shares: map[string][]knownShare{}, settling: map[string]chan struct{}{}, holders: map[string]*mvccpb.KeyValue{}, looking: make(chan struct{}, 1)}
	s.Session, s.watcher = sessions.New[*entry](d.sessions.Context(), ttl, s), newWatcher(s)
	return s
}

// Start asks for the lease by an ID of ours, so that a retry gets the same one, and Stop revokes it
// although the reply was lost. etcd raises a TTL that is too short for its election timeout without
// an error.
//
// With a user, an anchor is put on the lease, a key of ours that stays until the lease ends. etcd lets
// only those use or revoke a lease who may write all keys on it. So without an anchor another tenant
// could revoke our lease while nothing is held, or shut us out from it by a key.
func (s *session) Start() error {
	d, sent, seconds := s.driver, clock.Now(), int64(s.TTL/time.Second)
	s.id = clientv3.LeaseID(1 + rand.Int64N(math.MaxInt64-1))
	ctx, cancel := context.WithTimeout(s.Context(), s.TTL/2)
	defer cancel()
	granted, err := ask(ctx, d, func(ctx context.Context) (int64, error) {
		resp, err := d.leases().LeaseGrant(ctx, &etcdserverpb.LeaseGrantRequest{ID: int64(s.id), TTL: seconds})
		if err = rpctypes.Error(err); errors.Is(err, rpctypes.ErrLeaseExist) {
			found, err := d.leases().LeaseTimeToLive(ctx, &etcdserverpb.LeaseTimeToLiveRequest{ID: int64(s.id)})
			return found.GetGrantedTTL(), rpctypes.Error(err)
		}
		return resp.GetTTL(), err
	})
	switch {
	case err != nil && ctx.Err() != nil: // which is not that of a caller
		return noanswer.Error("etcd has not answered in time")
	case err != nil:
		return err
	case granted != seconds:
		return fmt.Errorf("%w: TTL %v: this etcd grants %v: ask for that or more; its floor is 1.5 election timeouts, in whole seconds",
			driver.ErrUnsupported, s.TTL, time.Duration(granted)*time.Second)
	}
	s.confirm(sent)
	if d.cli.Username != "" { // whoever may not put it sees that by the first lock
		anchor := fmt.Sprintf("%s%s%x", s.prefix, anchorMark, int64(s.id))
		_, _ = d.commit(ctx, nil, []clientv3.Op{clientv3.OpPut(anchor, "", clientv3.WithLease(s.id))}, nil)
	}
	return nil
}

// usurped reports whether another tenant has a key on the lease, and retires the session then.
func (s *session) usurped(ctx context.Context) bool {
	_, err := ask(ctx, s.driver, func(ctx context.Context) (*etcdserverpb.LeaseTimeToLiveResponse, error) {
		resp, err := s.driver.leases().LeaseTimeToLive(ctx, &etcdserverpb.LeaseTimeToLiveRequest{ID: int64(s.id), Keys: true})
		return resp, rpctypes.Error(err)
	})
	if !errors.Is(err, rpctypes.ErrPermissionDenied) {
		return false
	}
	s.Retire()
	return true
}

// leases makes requests that concern leases. The client's own leave the ID to the server, or go on
// asking without a pause.
func (d *backend) leases() etcdserverpb.LeaseClient {
	return etcdserverpb.NewLeaseClient(d.cli.ActiveConnection())
}

// Due implements sessions.Backend.
func (s *session) Due() (renew, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.due, s.until
}

// Renew implements sessions.Backend.
func (s *session) Renew() {
	ctx, cancel := context.WithTimeout(s.Context(), s.Left())
	defer cancel()
	if s.renew(ctx) == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := clock.Now(); !now.Before(s.due) {
		s.due = now.Add(s.TTL / retriesPerTTL)
	}
}

// renew asks for one more TTL, which counts from when the request was sent that is answered.
func (s *session) renew(ctx context.Context) error {
	_, err := ask(ctx, s.driver, func(ctx context.Context) (*etcdserverpb.LeaseKeepAliveResponse, error) {
		sent := clock.Now()
		stream, err := s.driver.leases().LeaseKeepAlive(ctx, grpc.WaitForReady(true))
		if err != nil {
			return nil, rpctypes.Error(err)
		}
		_ = stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(s.id)}) // Recv returns its error, too
		_ = stream.CloseSend()
		resp, err := stream.Recv()
		if err == nil && resp.GetTTL() <= 0 {
			s.End()
		}
		if err == nil && !s.confirm(sent) {
			err = errSessionEnded
		}
		return resp, rpctypes.Error(err)
	})
	return err
}

// confirm records that the server has answered a request for one more TTL, sent at sent. It returns
// false if the session has ended.
func (s *session) confirm(sent time.Time) bool {
	if s.Ended() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.until.IsZero() && !clock.Now().Before(s.until) {
		return false
	}
	if until := sent.Add(s.TTL); until.After(s.until) {
		// A Client renews its holds after TTL/3, which renews the session too, and should not be
		// done twice.
		s.until, s.due = until, sent.Add(s.TTL/5*2)
	}
	return true
}

// Stop implements sessions.Backend. It revokes the lease. If that fails, or a hold is to be left,
// the lease expires within one TTL.
func (s *session) Stop() {
	s.watcher.stop()
	if slices.ContainsFunc(s.Users(), func(e *entry) bool { return e.left.Load() }) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Context()), min(s.TTL/4, farewell))
	defer cancel()
	_, _ = s.driver.cli.Revoke(ctx, s.id)
}

// owner returns an owner that no other contender has now. One that is not doubtful is reused: until it
// compacts its history, etcd visits all keys that ever were in a folder, so there should be few. Two
// contenders of one owner differ in the revision that created the key.
func (s *session) owner() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.owners) - 1
	if last < 0 {
		return sessions.NewOwner()
	}
	owner := s.owners[last]
	s.owners = s.owners[:last]
	return owner
}

func (s *session) returnOwner(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owners = append(s.owners, owner)
}

// countTombstone counts a tombstone. After too many the session is retired, and its lease is revoked
// after its last user has left, and the tombstones with it.
func (s *session) countTombstone() {
	s.mu.Lock()
	s.tombstones++
	many := s.tombstones >= maxTombstones
	s.mu.Unlock()
	if many {
		s.Retire()
	}
}

// knownHolder returns the key that was last found to be the oldest of a folder, or nil.
func (s *session) knownHolder(folder string) *mvccpb.KeyValue {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holders[folder]
}

// noteHolder has the next TryLock ask for the key alone.
func (s *session) noteHolder(folder string, oldest *mvccpb.KeyValue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.holders) >= maxHolders {
		clear(s.holders)
	}
	s.holders[folder] = &mvccpb.KeyValue{Key: oldest.Key, CreateRevision: oldest.CreateRevision}
}
