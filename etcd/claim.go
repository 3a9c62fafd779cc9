package etcd

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/outage"
)

// claim implements [driver.Claim]: it is a place in the queue of its name, whether or not the
// first. It implements [driver.LossNotifier], [driver.Downgrader] and [driver.Leaver], too.
type claim struct {
	driver.Request

	of      *Driver
	session *session // nil: nothing was sent. Ask sets it, and the place
	place
	ahead string      // the key that the last look has found before ours, or our own
	left  atomic.Bool // see Leave
	watch int64       // number of the watch of our key, or of that ahead; guarded by the watcher's mutex

	mu       sync.Mutex
	created  int64  // the revision that created the key; 0 if that is not known
	phase    int64  // the token of a share that was granted beside others, or 0
	hinted   string // what a hint says of this share, or empty
	doubtful bool   // a request that creates the key may have been made without our knowing, or may still be
	asked    bool   // a release was sent
	finished bool
	result   error // of a Release once it is finished: nil or ErrLost
}

// Claim implements driver.Driver.
func (d *Driver) Claim(req driver.Request) driver.Claim { return &claim{Request: req, of: d} }

// Ask puts the key, if it is not there, and looks what is before it. If its session has ended, or
// somebody has removed its key, it begins again, at the end of the queue. If its connection breaks,
// it asks on another. In the end it returns the error, and the core asks again.
//
// One that has to wait is woken when what is before it goes. It also looks now and then: a watch
// may hang, at a server that does.
func (c *claim) Ask(ctx context.Context) (next time.Duration, err error) {
	if err := c.of.CheckTTL(c.TTL); err != nil {
		return 0, err
	}
	ahead, err := c.ask(ctx)
	for range rounds {
		switch {
		case errors.Is(err, errRemoved), errors.Is(err, errSessionEnded):
		case status.Code(err) == codes.Unavailable && clock.Sleep(ctx, reconnects) == nil:
		default:
			continue
		}
		ahead, err = c.ask(ctx)
	}
	switch {
	case err != nil:
		return 0, err
	case ahead == "":
		c.session.watcher.remove(c)
		return 0, nil
	case c.Wake == nil:
		return 0, c.withdraw(ctx, driver.ErrHeld)
	}
	c.ahead = ahead
	c.session.watcher.await(c, ahead)
	lookAgain := min(max(c.TTL/3, time.Second), 5*time.Second)
	return lookAgain + rand.N(lookAgain/4), driver.ErrHeld
}

// How often an Ask begins again, and how long the client library gets to notice that connections
// are broken: there may be one to each server.
const (
	rounds     = 3
	reconnects = 5 * time.Millisecond
)

// ask returns the key that is before ours, if there is one. Else the claim is granted.
func (c *claim) ask(ctx context.Context) (ahead string, err error) {
	if err := c.join(ctx); err != nil {
		return "", err
	}
	switch there := c.revision() != 0; {
	case c.Shared && there:
		ahead, err = c.settle(ctx, c.ahead)
	case c.Shared:
		ahead, err = c.enterShared(ctx)
	case there:
		ahead, err = c.look(ctx, c.ahead)
	default:
		ahead, err = c.enter(ctx)
	}
	if err == nil && ahead == "" && c.session.Left() < c.TTL/5*3 {
		err = c.of.once(c.TTL).Ask(ctx, c.session.renew)
	}
	return ahead, err
}

// join gives the claim a place on the session for its TTL, unless it has one.
func (c *claim) join(ctx context.Context) error {
	if c.session != nil && c.session.Left() == 0 { // all goes with it that was on it
		c.session.End()
		c.reset(driver.ErrLost)
	}
	for c.session == nil {
		s, err := c.of.sessions.Get(c.TTL, func() *session { return newSession(c.of, c.TTL) })
		if err == nil {
			err = s.Wait(ctx)
		}
		switch {
		case err != nil:
			return err
		case s.Join(c):
			id := s.owner()
			if c.Shared {
				id = readerMark + id
			}
			c.session, c.place = s, newPlace(c.Name, id)
			c.ahead = c.key
		case s.Left() == 0:
			s.End() // it was not confirmed in time
		}
	}
	return nil
}

// withdraw gives back what there is of the claim, and returns why. The next request begins again.
func (c *claim) withdraw(ctx context.Context, why error) error {
	err := c.giveBack(ctx)
	if err != nil && !errors.Is(err, driver.ErrLost) {
		return err
	}
	c.reset(err)
	return why
}

// reset makes the claim one of which nothing was sent. result is that of its release.
func (c *claim) reset(result error) {
	c.vacate(result)
	c.session, c.place = nil, place{}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.created, c.phase, c.hinted, c.doubtful, c.asked = 0, 0, "", false, false
}

// enter puts the key, and returns the key ahead of it, if there is one. A claim that does not wait
// puts it only if the queue is empty.
func (c *claim) enter(ctx context.Context) (ahead string, err error) {
	if c.Wake != nil {
		return c.enqueue(ctx)
	}
	resp, err := c.take(ctx, func(txn clientv3.Txn) clientv3.Txn {
		return txn.If(c.alive(), c.empty()).Then(c.put()).Else(c.own(), clientv3.OpGet(c.folder, clientv3.WithFirstCreate()...))
	})
	switch {
	case err != nil || resp.Succeeded:
		return "", err
	case c.revision() != 0: // by an earlier request
		return c.look(ctx, c.key)
	}
	switch oldest := first(resp.Responses[1]); {
	case oldest == nil: // we have been ended by force
		return "", c.removed(ctx)
	case isContender(oldest, c.folder):
		return "", c.withdraw(ctx, &driver.HeldError{Holder: participant(oldest, c.folder)})
	default: // it is none of ours: the queue shows who comes first
		return c.enqueue(ctx)
	}
}

// enqueue puts the key whatever is before it.
//
// Here and below, folders are read with their values: asked for keys only, etcd 3.7 leaves out
// their leases, too (https://github.com/etcd-io/etcd/issues/22209), by which a contender is told
// from what others have put there.
func (c *claim) enqueue(ctx context.Context) (ahead string, err error) {
	resp, err := c.take(ctx, func(txn clientv3.Txn) clientv3.Txn {
		return txn.If(c.alive(), c.absent()).Then(clientv3.OpGet(c.folder, clientv3.WithLastCreate()...), c.put()).Else(c.own())
	})
	if err != nil {
		return "", err
	}
	if resp.Succeeded {
		switch last := first(resp.Responses[0]); {
		case last == nil:
			return "", nil
		case isContender(last, c.folder):
			return string(last.Key), nil
		}
	}
	return c.look(ctx, c.key)
}

func (c *claim) put() clientv3.Op {
	return clientv3.OpPut(c.key, plainValue(c.Metadata), clientv3.WithLease(c.session.id))
}

// take makes a transaction that puts our key, or reads it first of all: an earlier request that
// was not answered may have put it, and may yet do so for as long as the session lives.
func (c *claim) take(ctx context.Context, write func(clientv3.Txn) clientv3.Txn) (*clientv3.TxnResponse, error) {
	resp, err := ask(ctx, c.of.once(c.TTL), func(ctx context.Context) (*clientv3.TxnResponse, error) {
		resp, err := write(c.of.cli.Txn(ctx)).Commit()
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			c.session.End() // which nobody else might notice until the next renewal
		}
		if err != nil && !refused(err) {
			c.mu.Lock()
			c.doubtful = true
			c.mu.Unlock()
			c.session.doubt()
		}
		return resp, err
	})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if put((*etcdserverpb.TxnResponse)(resp)) {
		c.created = resp.Header.Revision
	} else if kv := first(resp.Responses[0]); kv != nil {
		c.created = kv.CreateRevision
	}
	return resp, nil
}

// put reports whether a transaction of take has put our key: itself, or by one within it.
func put(resp *etcdserverpb.TxnResponse) bool {
	return resp.GetSucceeded() || slices.ContainsFunc(resp.GetResponses(), func(r *etcdserverpb.ResponseOp) bool { return put(r.GetResponseTxn()) })
}

// txn makes a transaction that puts no key.
func (c *claim) txn(ctx context.Context, write func(clientv3.Txn) clientv3.Txn) (*clientv3.TxnResponse, error) {
	return ask(ctx, c.of.once(c.TTL), func(ctx context.Context) (*clientv3.TxnResponse, error) { return write(c.of.cli.Txn(ctx)).Commit() })
}

// look returns the key that is ahead of ours, if there is one. It also looks at our own: the
// session may have ended while we waited. If ahead, a key, still stands before ours, no other is
// read: of a folder the server reads all keys, however few it is asked for. Our own key as ahead
// stands for none.
func (c *claim) look(ctx context.Context, ahead string) (string, error) {
	created := c.revision()
	for _, limit := range []int64{1, 0} { // the latest, and if that is not one of ours, all
		earlier := clientv3.OpGet(c.folder, clientv3.WithPrefix(), clientv3.WithMaxCreateRev(created-1),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend), clientv3.WithLimit(limit))
		resp, err := c.txn(ctx, func(txn clientv3.Txn) clientv3.Txn {
			return txn.If(isBefore(ahead, created)...).Then(c.own(), clientv3.OpGet(ahead)).Else(c.own(), earlier)
		})
		if err != nil {
			return "", err
		}
		if !c.isKey(first(resp.Responses[0])) {
			return "", c.removed(ctx)
		}
		found := resp.Responses[1].GetResponseRange().GetKvs()
		for _, kv := range found {
			if isContender(kv, c.folder) {
				return string(kv.Key), nil
			}
		}
		if len(found) == 0 {
			break
		}
		ahead = c.key
	}
	return "", nil
}

// isBefore is true if a key is there that was created before a revision: an owner may have come
// back, at the end of the queue.
func isBefore(key string, created int64) []clientv3.Cmp {
	revision := clientv3.CreateRevision(key)
	return []clientv3.Cmp{clientv3.Compare(revision, ">", 0), clientv3.Compare(revision, "<", created)}
}

// removed has the next request begin again, for our key is not there, and returns why that is.
func (c *claim) removed(ctx context.Context) error {
	if err := c.of.once(c.TTL).Ask(ctx, c.session.renew); err != nil {
		return err
	}
	return c.withdraw(ctx, errRemoved)
}

// revision returns the revision that created the key, or 0 if that is not known.
func (c *claim) revision() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.created
}

// isKey reports whether kv, found at the key, is the one that we put there.
func (c *claim) isKey(kv *mvccpb.KeyValue) bool {
	return kv != nil && kv.CreateRevision == c.revision()
}

// first returns the first key of an answer, or nil if it has none.
func first(r *etcdserverpb.ResponseOp) *mvccpb.KeyValue {
	if kvs := r.GetResponseRange().GetKvs(); len(kvs) > 0 {
		return kvs[0]
	}
	return nil
}

// once makes a request of a claim once, and beside it another, at the next server, if it is slow: a
// TryLock has no second one. What fails the core asks for again.
func (d *Driver) once(ttl time.Duration) *outage.Outage {
	o := d.newOutage(ttl)
	o.Once = true
	return o
}
