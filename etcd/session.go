package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/clock"
)

const (
	retriesPerTTL = 24          // a renewal that failed at once is sent again after TTL/24
	keepUnused    = time.Minute // a session that nobody uses, or its TTL if that is longer
	farewell      = 700 * time.Millisecond
	maxDoubts     = 64
)

// session is a lease of etcd's that all contenders of one TTL share, and the goroutine that keeps it alive.
// It ends when the server says that it has, when it has not been confirmed for one TTL, when nobody has
// used it for a while, and with the Driver. Once it has ended it is never revived.
type session struct {
	driver *Driver
	ttl    time.Duration

	ready chan struct{} // closed when id or err is set
	id    clientv3.LeaseID
	err   error // of the grant

	ctx    context.Context // ends with the session
	cancel context.CancelFunc
	nudge  chan struct{} // holds one: look whether the session is still of use

	mu      sync.Mutex
	until   time.Time // of package clock: one TTL after the last request was sent that the server has confirmed
	due     time.Time // when to renew it
	users   int       // leases that are not finished
	unused  time.Time // since when there are none
	doubts  int
	retired bool // takes no more users
	ended   bool
	onEnd   map[*lease]func()
	owners  []string // that nobody goes by, and no request that is still to come
}

func newSession(d *Driver, ttl time.Duration) *session {
	s := &session{
		driver: d, ttl: ttl, ready: make(chan struct{}), nudge: make(chan struct{}, 1),
		onEnd: map[*lease]func(){}, users: 1,
	}
	s.ctx, s.cancel = context.WithCancel(d.ctx)
	return s
}

// join returns the session for ttl, and counts the caller as one of its users. The first of them has it
// granted.
func (d *Driver) join(ctx context.Context, ttl time.Duration) (*session, error) {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil, locker.ErrClosed
	}
	s := d.sessions[ttl]
	if s == nil || !s.use() {
		s = newSession(d, ttl)
		d.sessions[ttl] = s
		// A little less than the first who waits for it has, so that he hears why it failed. But one in a hurry does
		// not have it given up: it would be granted all the same, for nobody, and last for a TTL.
		patience := firstPatience(ttl)
		if r := requestOf(ctx); r != nil {
			patience = max(patience, time.Until(r.until))
		}
		d.running.Go(func() { s.run(patience * 3 / 4) })
	}
	d.mu.Unlock()
	select {
	case <-s.ready:
	case <-ctx.Done():
		s.leave()
		return nil, ctx.Err()
	}
	if s.err != nil {
		return nil, s.err
	}
	return s, nil
}

// forget has later users make another session.
func (d *Driver) forget(s *session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sessions[s.ttl] == s {
		delete(d.sessions, s.ttl)
	}
}

func (s *session) run(patience time.Duration) {
	err := s.grant(patience)
	if err != nil {
		s.err = err
		s.driver.forget(s)
		s.end()
	}
	close(s.ready)
	if err != nil {
		return
	}
	gone := s.keep()
	s.driver.forget(s)
	s.end()
	if !gone {
		s.revoke()
	}
}

// grant asks for the lease. etcd raises a TTL that is too short for its election timeout in silence.
func (s *session) grant(patience time.Duration) error {
	ctx, cancel := withTimeout(s.ctx, patience)
	defer cancel()
	sent, seconds := clock.Now(), int64(s.ttl/time.Second)
	resp, err := s.driver.cli.Grant(ctx, seconds)
	if err != nil {
		return explain(s.ctx, ctx, err)
	}
	s.id = resp.ID
	if resp.TTL != seconds {
		s.revoke()
		return fmt.Errorf("%w: TTL %v: this etcd grants %v: ask for that or more; its floor is 1.5 election timeouts, in whole seconds",
			locker.ErrUnsupported, s.ttl, time.Duration(resp.TTL)*time.Second)
	}
	s.confirm(sent)
	return nil
}

// authenticates says whether the etcd client asks for a token before each renewal. That costs the server a tenth of a
// second of computing, and goes on when nobody waits any more: to ask again soon would make a busy one busier.
func (d *Driver) authenticates() bool { return d.cli.Username != "" }

// confirm takes in that the server has answered a request for one more TTL, sent at sent. It returns
// false if the session has ended.
func (s *session) confirm(sent time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || !s.until.IsZero() && !clock.Now().Before(s.until) {
		return false
	}
	if until := sent.Add(s.ttl); until.After(s.until) {
		// A Client renews its holds after TTL/3, which renews the session too, and should not be done twice.
		s.until, s.due = until, sent.Add(s.ttl/5*2)
	}
	return true
}

// keep renews the session until that is no longer possible or of any use. It says whether the server has
// said that the lease is gone.
func (s *session) keep() (gone bool) {
	for {
		wait, over := s.next()
		if over {
			return false
		}
		if wait > 0 {
			s.doze(wait)
			continue
		}
		// Who asks anew does not hear how long there has been no answer: the session is worth a try until it ends.
		o := newOutage(s.ttl, s.driver.authenticates(), unheard)
		ctx, cancel := context.WithTimeout(s.ctx, s.left())
		err := o.Ask(ctx, s.renew)
		cancel()
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return true
		}
		if err != nil {
			s.postpone()
		}
	}
}

// next says how long it is until the next renewal, and whether there will be none.
func (s *session) next() (wait time.Duration, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock.Now()
	useless := s.users == 0 && (s.retired || now.Sub(s.unused) > max(s.ttl, keepUnused))
	if s.ended || s.ctx.Err() != nil || useless || !now.Before(s.until) {
		s.ended = true // in this step, so that nobody begins to use it
		return 0, true
	}
	return min(s.due.Sub(now), s.until.Sub(now), keepUnused), false
}

// owner is for one contender at a time, and for another one when the first has left no doubt: until it compacts its
// history, etcd goes through all keys that ever were in a folder, so that there should be few. What tells
// two who follow each other apart is the revision that created the key.
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

func (s *session) doze(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.nudge:
	case <-s.ctx.Done():
	}
}

func (s *session) postpone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := clock.Now(); !now.Before(s.due) {
		s.due = now.Add(s.ttl / retriesPerTTL)
	}
}

// renew asks for one more TTL. KeepAliveOnce tells when the request was sent, which the client's own keepalive
// does not; the same server may be asked several times by it, and the first time counts.
func (s *session) renew(ctx context.Context) error {
	sent := clock.Now()
	_, err := s.driver.cli.KeepAliveOnce(ctx, s.id)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		s.end()
	}
	if err != nil {
		return err
	}
	if !s.confirm(sent) {
		return errSessionEnded
	}
	return nil
}

// use counts one more user. It returns false if the session is not to be used any more.
func (s *session) use() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	expired := !s.until.IsZero() && !clock.Now().Before(s.until)
	if s.ended || s.retired || expired {
		return false
	}
	s.users++
	return true
}

// leave undoes use.
func (s *session) leave() {
	s.mu.Lock()
	s.users--
	s.unused = clock.Now()
	useless := s.users == 0 && s.retired
	s.mu.Unlock()
	if !useless {
		return
	}
	select {
	case s.nudge <- struct{}{}:
	default:
	}
}

// doubt counts a request that may be done later, and will leave a mark. Of too many the session is kept for those
// who use it, and its lease is revoked after the last of them: the marks go with it.
func (s *session) doubt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doubts++
	s.retired = s.retired || s.doubts >= maxDoubts
}

// left is how long the session lasts for certain.
func (s *session) left() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return 0
	}
	return max(s.until.Sub(clock.Now()), 0)
}

// end tells everyone that the session is over.
func (s *session) end() {
	s.mu.Lock()
	s.ended = true
	callbacks := s.onEnd
	s.onEnd = nil
	s.mu.Unlock()
	s.cancel()
	for _, f := range callbacks {
		f()
	}
}

// notify has f called when the session ends, or now if it has.
func (s *session) notify(l *lease, f func()) {
	s.mu.Lock()
	if !s.ended || s.onEnd != nil {
		s.onEnd[l] = f
		f = nil
	}
	s.mu.Unlock()
	if f != nil {
		f()
	}
}

func (s *session) forget(l *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.onEnd, l)
}

// revoke has the server end the lease now. If that fails it lapses within one TTL.
func (s *session) revoke() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), min(s.ttl/4, farewell))
	defer cancel()
	_, _ = s.driver.cli.Revoke(ctx, s.id)
}
