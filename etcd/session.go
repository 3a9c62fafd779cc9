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
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/sessions"
)

const (
	retriesPerTTL = 24 // a renewal that failed at once is sent again after TTL/24
	farewell      = 700 * time.Millisecond
	maxDoubts     = 64
)

// session is a lease of etcd's, which all contenders of one TTL share. It implements [sessions.Backend].
type session struct {
	*sessions.Session[*claim]

	driver *Driver
	id     clientv3.LeaseID

	looking chan struct{} // full while a share reads all others
	watcher *watcher

	mu     sync.Mutex
	until  time.Time // of package clock: one TTL after the last request was sent that the server has confirmed
	due    time.Time // when to renew it
	doubts int
	shares map[string]*knownShares // by their folders
	owners []string                // that nobody goes by, and no request that is still to come
}

func newSession(d *Driver, ttl time.Duration) *session {
	s := &session{driver: d, shares: map[string]*knownShares{}, looking: make(chan struct{}, 1)}
	s.Session, s.watcher = sessions.New[*claim](d.sessions.Context(), ttl, s), newWatcher(s)
	return s
}

// Start asks for the lease. It gives that a little less time than the request has that waits for
// it, so that its caller learns why it failed. etcd raises a TTL that is too short for its election
// timeout without an error.
func (s *session) Start() error {
	sent, seconds := clock.Now(), int64(s.TTL/time.Second)
	s.id = clientv3.LeaseID(1 + rand.Int64N(math.MaxInt64-1)) // Stop revokes it though no answer comes
	granted, err := ask(s.Context(), s.driver.once(s.TTL/4*3), func(ctx context.Context) (int64, error) {
		return s.driver.grant(ctx, s.id, seconds)
	})
	if err != nil {
		return err
	}
	if granted != seconds {
		return fmt.Errorf("%w: TTL %v: this etcd grants %v: ask for that or more; its floor is 1.5 election timeouts, in whole seconds",
			driver.ErrUnsupported, s.TTL, time.Duration(granted)*time.Second)
	}
	s.confirm(sent)
	return nil
}

// grant asks for a lease of our ID: however often it is asked for, there is one. It returns what is
// granted. The client's own Grant leaves the ID to the server.
func (d *Driver) grant(ctx context.Context, id clientv3.LeaseID, seconds int64) (int64, error) {
	resp, err := etcdserverpb.NewLeaseClient(d.cli.ActiveConnection()).LeaseGrant(ctx, &etcdserverpb.LeaseGrantRequest{ID: int64(id), TTL: seconds})
	if err = rpctypes.Error(err); errors.Is(err, rpctypes.ErrLeaseExist) {
		found, err := d.cli.TimeToLive(ctx, id)
		if err != nil {
			return 0, err
		}
		return found.GrantedTTL, nil
	}
	return resp.GetTTL(), err
}

// Due implements sessions.Backend.
func (s *session) Due() (renew, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.due, s.until
}

// Renew implements sessions.Backend.
func (s *session) Renew() {
	// The Outage is new each time, so that an earlier failure does not shorten it: the session may be renewed until it ends.
	o := s.driver.newOutage(s.TTL)
	ctx, cancel := context.WithTimeout(s.Context(), s.Left())
	defer cancel()
	if err := o.Ask(ctx, s.renew); err == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := clock.Now(); !now.Before(s.due) {
		s.due = now.Add(s.TTL / retriesPerTTL)
	}
}

// renew asks for one more TTL. With KeepAliveOnce it is known when the request was sent; with the client's own keepalive it is
// not. KeepAliveOnce may ask the same server several times, and the first time counts.
func (s *session) renew(ctx context.Context) error {
	sent := clock.Now()
	if c := s.driver.conns; c != nil { // which ZooKeeper's connections do, too
		t := time.AfterFunc(s.TTL/3, func() { c.leave(s.TTL / 4) })
		defer t.Stop()
	}
	_, err := s.driver.cli.KeepAliveOnce(ctx, s.id)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		s.End()
	}
	if err == nil && !s.confirm(sent) {
		return errSessionEnded
	}
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
		// A Client renews its holds after TTL/3, which renews the session too, and should not be done twice.
		s.until, s.due = until, sent.Add(s.TTL/5*2)
	}
	return true
}

// Stop implements sessions.Backend. A lease that is to be left expires with the session.
func (s *session) Stop() {
	s.watcher.stop()
	left := slices.ContainsFunc(s.Users(), func(c *claim) bool { return c.left.Load() })
	if s.id != clientv3.NoLease && !left {
		s.revoke(s.id)
	}
}

// revoke has the server end a lease. If that fails it expires within one TTL.
func (s *session) revoke(id clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Context()), min(s.TTL/4, farewell))
	defer cancel()
	_, _ = s.driver.cli.Revoke(ctx, id)
}

// owner returns an owner that no other contender has now. One that left no doubt is used again: until it compacts its
// history, etcd goes through all keys that ever were in a folder, so there should be few. Two contenders that follow each
// other differ in the revision that created the key.
func (s *session) owner() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.owners) - 1
	if last < 0 {
		return newOwner()
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

// doubt counts a request that may be done later, and will leave a mark. After too many the session takes no more users, and
// its lease is revoked after the last of them: the marks go with it.
func (s *session) doubt() {
	s.mu.Lock()
	s.doubts++
	many := s.doubts >= maxDoubts
	s.mu.Unlock()
	if many {
		s.Retire()
	}
}
