package redis

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/redisscript/script"
)

// cluster is a ClusterClient, and looks who serves what when there is reason to. go-redis itself
// does so when it is sent on, but not when a node is gone: then it goes on dialling it, for a
// minute by default. Methods do nothing on nil.
type cluster struct {
	*goredis.ClusterClient
	reloaded atomic.Int64 // when doubt last called ReloadState, in nanoseconds since epoch
	looked   atomic.Int64 // when somebody last waited for a look
	doubtful atomic.Bool  // and nobody has waited for that
}

var epoch = time.Now()

const (
	pause    = 100 * time.Millisecond // between two looks that errors have brought about
	patience = time.Second            // with a node that does not answer
)

// noticed takes in the error of a request. A look too many does no harm.
func (c *cluster) noticed(err error) {
	if c == nil || err == nil || errors.Is(err, context.Canceled) {
		return
	}
	var answer goredis.Error
	if !errors.As(err, &answer) || isMisdirected(answer) {
		c.doubt()
	}
}

// doubt makes go-redis reload the slots in the background.
func (c *cluster) doubt() {
	c.doubtful.Store(true)
	now, last := int64(time.Since(epoch)), c.reloaded.Load()
	if (last == 0 || now-last > int64(pause)) && c.reloaded.CompareAndSwap(last, now) {
		c.ReloadState(context.Background())
	}
}

// watch is called when a request is sent, and what it returns when it is done: the node that it
// hangs on may be replaced before go-redis tries for the last time.
func (c *cluster) watch() (done func()) {
	if c == nil {
		return func() {}
	}
	var over atomic.Bool
	var look func()
	look = func() {
		if !over.Load() {
			c.doubt()
			time.AfterFunc(patience, look)
		}
	}
	first := time.AfterFunc(patience, look)
	return func() {
		over.Store(true)
		first.Stop()
	}
}

// isMisdirected reports whether a node does not serve the key, or not now.
func isMisdirected(err error) bool {
	for _, prefix := range []string{"MOVED ", "ASK ", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "LOADING"} {
		if strings.HasPrefix(err.Error(), prefix) {
			return true
		}
	}
	return script.IsReadOnly(err.Error())
}

// primary returns a client of the node that serves key, after a look if the last one is in doubt.
func (c *cluster) primary(ctx context.Context, key string) (*goredis.Client, error) {
	if c.doubtful.Swap(false) {
		// Nodes may take a while to agree.
		now := int64(time.Since(epoch))
		if last := c.looked.Swap(now); last > 0 && now-last < int64(pause) {
			_ = clock.Sleep(ctx, pause/2)
		}
		_, _ = c.look(ctx, "") // else it is as before
	}
	return c.MasterForKey(ctx, key)
}

// owner is primary, and asks the node: one that has become a replica takes subscriptions all the
// same, and receives nothing that counts.
func (c *cluster) owner(ctx context.Context, key string) (*goredis.Client, error) {
	for {
		node, err := c.primary(ctx, key)
		if err != nil {
			return nil, err
		}
		err = node.PTTL(ctx, key).Err()
		if _, ask := goredis.IsAskError(err); ask {
			return node, nil // its slot is about to move
		}
		if _, moved := goredis.IsMovedError(err); !moved {
			c.noticed(err)
			return node, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		c.doubtful.Store(true)
	}
}

// look waits until the client knows the cluster anew, and returns the primary with that address, if
// there is one. It is ForEachMaster that looks anew; ReloadState returns before it has.
func (c *cluster) look(ctx context.Context, addr string) (*goredis.Client, error) {
	var mu sync.Mutex
	var found *goredis.Client
	err := c.ForEachMaster(ctx, func(_ context.Context, node *goredis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		if node.Options().Addr == addr {
			found = node
		}
		return nil
	})
	return found, err
}

// target is a node, and whether it is about to get the slots of what is sent to it.
type target struct {
	node   *goredis.Client
	asking bool
}

// sendToPrimaries sends each node a pipeline of the calls that it serves, with one WAIT: that has
// no key by which go-redis could find the node. It does what go-redis would when a node is gone, or
// sends a call on.
func (r *runner) sendToPrimaries(ctx context.Context, c *cluster, calls []script.Call, replies []script.Reply) {
	pending := make([]int, len(calls))
	for i := range pending {
		pending[i] = i
	}
	for attempt := 0; ; attempt++ {
		pending = slices.DeleteFunc(r.sendShares(ctx, c, calls, replies, pending), func(i int) bool {
			err := replies[i].Err
			return err == nil || replies[i].Ran || isAnswer(err) && !isMisdirected(err)
		})
		if len(pending) == 0 || ctx.Err() != nil || attempt >= c.Options().MaxRedirects {
			return
		}
		err := replies[pending[0]].Err
		c.noticed(err)
		_, asking := goredis.IsAskError(err)
		if _, moved := goredis.IsMovedError(err); attempt > 0 || !moved && !asking {
			_ = clock.Sleep(ctx, 10*time.Millisecond<<attempt)
		}
	}
}

// sendShares sends each node its share of the calls with the indices which, and files the replies.
// It returns which were sent.
func (r *runner) sendShares(ctx context.Context, c *cluster, calls []script.Call, replies []script.Reply, which []int) (sent []int) {
	shares := map[target][]int{}
	for _, i := range which {
		var to target
		var err error
		if addr, ok := goredis.IsAskError(replies[i].Err); ok {
			to.node, err = c.look(ctx, addr)
			to.asking = to.node != nil
		}
		if to.node == nil && err == nil {
			to.node, err = c.primary(ctx, calls[i].Keys[0].(string))
		}
		if err != nil {
			replies[i].Err = cmp.Or(replies[i].Err, err)
			continue
		}
		shares[to] = append(shares[to], i)
		sent = append(sent, i)
	}
	var wg sync.WaitGroup
	for to, share := range shares {
		wg.Go(func() {
			script.RunSome(calls, replies, share, func(mine []script.Call, got []script.Reply) {
				r.sendAndWait(ctx, to.node, to.asking, mine, got)
			})
		})
	}
	wg.Wait()
	return sent
}
