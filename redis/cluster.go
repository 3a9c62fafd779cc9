package redis

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker/internal/clock"
)

// cluster is a ClusterClient, and looks who serves what when there is reason to. go-redis itself does so
// when it is sent on, but not when a node is gone: then it goes on dialling it, for a minute by default.
// Methods do nothing on nil.
type cluster struct {
	*goredis.ClusterClient
	reloaded atomic.Int64 // when it was last told to look, in nanoseconds since epoch
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

// doubt has go-redis look, in the background.
func (c *cluster) doubt() {
	c.doubtful.Store(true)
	now, last := int64(time.Since(epoch)), c.reloaded.Load()
	if (last == 0 || now-last > int64(pause)) && c.reloaded.CompareAndSwap(last, now) {
		c.ReloadState(context.Background())
	}
}

// watch is called when a request is sent, and what it returns when it is done: the node that it hangs on may be
// replaced before go-redis tries for the last time.
func (c *cluster) watch() (done func()) {
	if c == nil {
		return func() {}
	}
	var (
		mu    sync.Mutex
		over  bool
		timer *time.Timer
	)
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(patience, func() {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			c.doubt()
			timer.Reset(patience)
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
		timer.Stop()
	}
}

// isMisdirected reports whether a node does not serve the key, or not now.
func isMisdirected(err error) bool {
	for _, prefix := range []string{"MOVED ", "ASK ", "TRYAGAIN", "CLUSTERDOWN", "READONLY", "MASTERDOWN", "LOADING"} {
		if strings.HasPrefix(err.Error(), prefix) {
			return true
		}
	}
	return false
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

// owner is primary, and asks the node: one that has become a replica takes subscriptions all the same, and
// receives nothing that counts.
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

// sendToPrimary sends a request with its WAIT, which has no key that go-redis could find the node by, and
// does what go-redis would when a node sends it on.
func (r *runner) sendToPrimary(ctx context.Context, q request) result {
	var res result
	key := q.call.Keys[0].(string)
	node, err := r.cluster.primary(ctx, key)
	if err != nil {
		res.Err = err
		return res
	}
	asking := false
	for attempt := 0; ; attempt++ {
		res = r.sendAndWait(ctx, node, asking, []request{q})[0]
		if res.Err == nil || res.ran || attempt >= r.cluster.Options().MaxRedirects || !isWorthAnother(ctx, res.Err) {
			r.cluster.noticed(res.Err)
			return res
		}
		node, asking, err = r.cluster.next(ctx, key, res.Err, attempt)
		if err != nil {
			return res
		}
	}
}

func isWorthAnother(ctx context.Context, err error) bool {
	var answer goredis.Error
	return ctx.Err() == nil && (!errors.As(err, &answer) || isMisdirected(answer))
}

// next returns where to try again after err.
func (c *cluster) next(ctx context.Context, key string, err error, attempt int) (node *goredis.Client, asking bool, _ error) {
	if addr, ok := goredis.IsAskError(err); ok {
		node, err = c.look(ctx, addr)
		if node != nil || err != nil {
			return node, true, err
		}
	}
	if _, ok := goredis.IsMovedError(err); !ok || attempt > 0 {
		_ = clock.Sleep(ctx, 10*time.Millisecond<<attempt)
	}
	c.doubtful.Store(true)
	node, err = c.primary(ctx, key)
	return node, false, err
}

// sendToPrimaries sends each node a pipeline with what it serves and one WAIT. What is sent on goes to the right
// nodes in the same way, and by itself if it is sent on again.
func (r *runner) sendToPrimaries(ctx context.Context, requests []request) []result {
	results := make([]result, len(requests))
	pending := make([]int, len(requests))
	for i := range requests {
		pending[i] = i
	}
	for range 2 {
		r.sendShares(ctx, requests, results, pending)
		pending = slices.DeleteFunc(pending, func(i int) bool { return !sentOn(results[i]) })
		if len(pending) == 0 {
			return results
		}
		r.cluster.noticed(results[pending[0]].Err)
	}
	for _, i := range pending {
		results[i] = r.sendToPrimary(ctx, requests[i])
	}
	return results
}

func sentOn(res result) bool {
	var answer goredis.Error
	return !res.ran && errors.As(res.Err, &answer) && isMisdirected(answer)
}

// sendShares sends each node its share of the requests with the indices which, and files the results.
func (r *runner) sendShares(ctx context.Context, requests []request, results []result, which []int) {
	shares := map[*goredis.Client][]int{}
	for _, i := range which {
		node, err := r.cluster.primary(ctx, requests[i].call.Keys[0].(string))
		if err != nil {
			results[i].Err = err
			continue
		}
		shares[node] = append(shares[node], i)
	}
	var wg sync.WaitGroup
	for node, share := range shares {
		wg.Go(func() {
			mine := make([]request, len(share))
			for i, j := range share {
				mine[i] = requests[j]
			}
			for i, res := range r.sendAndWait(ctx, node, false, mine) {
				results[share[i]] = res
			}
		})
	}
	wg.Wait()
}
