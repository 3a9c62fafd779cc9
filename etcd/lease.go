package etcd

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/outage"
)

// Token implements driver.Lease.
func (c *claim) Token() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return uint64(cmp.Or(c.phase, c.created))
}

// Validity implements driver.Lease.
func (c *claim) Validity() time.Duration {
	if c.session == nil {
		return 0
	}
	return c.session.Left()
}

// NotifyLost implements driver.LossNotifier.
func (c *claim) NotifyLost(f func()) { c.session.Notify(c, f) }

// Leave implements driver.Leaver.
func (c *claim) Leave() { c.left.Store(true) }

// Extend implements driver.Lease.
func (c *claim) Extend(ctx context.Context, ttl time.Duration) error {
	return c.of.ExtendAll(ctx, []driver.Lease{c}, ttl)[0]
}

// Release implements driver.Lease. A claim whose take is in doubt is also kept from coming back.
func (c *claim) Release(ctx context.Context) error {
	c.mu.Lock()
	finished, result := c.finished, c.result
	c.mu.Unlock()
	if finished {
		return result
	}
	result = c.giveBack(ctx)
	if result != nil && !errors.Is(result, driver.ErrLost) {
		return result
	}
	c.mu.Lock()
	if finished = c.finished; !finished {
		c.finished, c.result = true, result
	}
	result = c.result
	c.mu.Unlock()
	if !finished {
		c.vacate(result)
	}
	return result
}

// giveBack removes the key, and what may become of a request that was not answered. It makes no
// request if there is neither.
func (c *claim) giveBack(ctx context.Context) error {
	c.mu.Lock()
	created, doubtful, asked := c.created, c.doubtful, c.asked
	c.asked = true
	c.mu.Unlock()
	if created == 0 && !doubtful {
		return nil
	}
	o := c.of.newOutage(c.TTL)
	o.Answered = func(error) { asked = true }
	resp, err := ask(ctx, o, func(ctx context.Context) (*clientv3.TxnResponse, error) { return c.remove(ctx, created, doubtful) })
	missing := err == nil && !resp.Succeeded && created != 0
	if missing && forced(resp) {
		c.session.doubt() // for the mark
		return driver.ErrLost
	}
	if missing && asked {
		// We have deleted it before, unless the session had ended.
		err, missing = o.Ask(ctx, c.session.renew), false
	}
	if missing || errors.Is(err, errSessionEnded) {
		return driver.ErrLost
	}
	return err
}

// remove deletes the key. In doubt the same step puts a mark, on the same session, that every take compares with: the take may
// arrive later, for as long as the session lives. If the key is not there the mark that is there is read, and left: it may be that of a ForceRelease.
func (c *claim) remove(ctx context.Context, created int64, doubtful bool) (*clientv3.TxnResponse, error) {
	ours := clientv3.Compare(clientv3.CreateRevision(c.key), "=", created)
	del := clientv3.OpDelete(c.key)
	dels := append(c.dropHint(), del)
	txn := c.of.cli.Txn(ctx).If(ours)
	if !doubtful {
		return txn.Then(dels...).Else(clientv3.OpGet(c.dead)).Commit()
	}
	mark := clientv3.OpPut(c.dead, "", clientv3.WithLease(c.session.id))
	unmarked := clientv3.OpTxn([]clientv3.Cmp{c.alive()}, []clientv3.Op{mark}, nil)
	resp, err := txn.Then(append(dels, mark)...).Else(clientv3.OpGet(c.dead), del, unmarked).Commit()
	if errors.Is(err, rpctypes.ErrNoSpace) {
		// The mark has to wait for space. Those behind the key do not: its owner is not used again.
		_, _ = c.of.cli.Delete(ctx, c.key)
	}
	return resp, err
}

// vacate leaves the session after a release that had that result.
func (c *claim) vacate(result error) {
	if c.session == nil {
		return
	}
	c.mu.Lock()
	share, reusable := c.phase != 0, !c.doubtful && (result == nil || c.created == 0)
	c.mu.Unlock()
	if reusable {
		c.session.returnOwner(c.owner)
	}
	if share {
		c.session.forgetShare(c.folder, c.key)
	}
	c.session.watcher.remove(c)
	c.session.Leave(c)
}

// leaving reports whether the lease has ended, or may be about to by our own release.
func (c *claim) leaving() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.finished || c.asked
}

// keysPerLook is how many keys are looked at in one request; a server allows 128 by default.
const keysPerLook = 100

// extension is one of the leases that ExtendAll extends, and where its error goes.
type extension struct {
	*claim
	err *error
}

// ExtendAll renews the session, or sessions, of the leases, and then looks whether the keys are still there: a key
// could not be known to be there after a renewal that was made later.
func (d *Driver) ExtendAll(ctx context.Context, leases []driver.Lease, _ time.Duration) []error {
	errs := make([]error, len(leases))
	bySession := map[*session][]extension{}
	for i, l := range leases {
		c := l.(*claim)
		bySession[c.session] = append(bySession[c.session], extension{c, &errs[i]})
	}
	var answered sync.WaitGroup
	for s, all := range bySession {
		answered.Go(func() {
			o := d.newOutage(s.TTL)
			renewed := o.Ask(ctx, s.renew)
			for some := range slices.Chunk(all, keysPerLook) {
				d.verify(ctx, o, some, renewed)
			}
		})
	}
	answered.Wait()
	return errs
}

// verify sets the errors of leases whose session's renewal has ended with err.
func (d *Driver) verify(ctx context.Context, o *outage.Outage, leases []extension, err error) {
	var resp *clientv3.TxnResponse
	if err == nil {
		ops := make([]clientv3.Op, len(leases))
		for i, l := range leases {
			ops[i] = l.own()
		}
		resp, err = ask(ctx, o, func(ctx context.Context) (*clientv3.TxnResponse, error) { return d.cli.Txn(ctx).Then(ops...).Commit() })
	}
	for i, l := range leases {
		switch {
		case err != nil:
			*l.err = asLost(err)
		case l.leaving() || !l.isKey(first(resp.Responses[i])):
			*l.err = driver.ErrLost
		}
	}
}
