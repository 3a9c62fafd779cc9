package redis_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// Many wait, work, give up and come again, while the network and the server's data suffer at random.
// Only what forgets a hold may let two in at once, so the lock's hash is left alone.
func TestQueueStorm_excludesAndLetsNobodyWaitForEver(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	direct := connect(t, s.Addr())
	r := newQueueTest(t, direct)
	proxies := []*testserver.Proxy{testserver.NewProxy(t, s.Addr()), testserver.NewProxy(t, s.Addr())}
	clients := []*locker.Client{
		newClient(t, proxies[0].Addr()), newClient(t, proxies[1].Addr()), newClient(t, s.Addr()),
		newClientThatSubscribesAt(t, s.Addr(), proxies[0].Addr()),
		clientOf(t, connect(t, proxies[1].Addr()), locker.WithTTL(4*time.Second)),
	}
	const seed = 7
	lasting, enough := 2*time.Second, int32(10)
	if testwait.Thorough() {
		lasting, enough = 8*time.Second, 100
	}
	stop := make(chan struct{})
	var served, gaveUp atomic.Int32
	var all []<-chan error
	for id := range 25 {
		random := rand.New(rand.NewPCG(seed, uint64(id)))
		all = append(all, async(func() error {
			return r.comeAndGo(clients[id%len(clients)], random, stop, &served, &gaveUp)
		}))
	}
	stormOver(r, proxies, rand.New(rand.NewPCG(seed, 1000)), lasting)
	close(stop)
	defer r.explain()
	wantServed(t, all)
	t.Logf("%d were served, %d gave up", served.Load(), gaveUp.Load())
	assert.Greater(t, served.Load(), enough)
	r.wantEmpty()
}

// explain logs, after a failure, who has the lock and who waits.
func (r *queueTest) explain() {
	if r.t.Failed() {
		ctx := context.Background()
		r.t.Logf("the lock: %v, expires in %v; the queue: %v; listening: %v", r.direct.HGetAll(ctx, keyOf(r.name)).Val(),
			r.direct.PTTL(ctx, keyOf(r.name)).Val()-keep, r.queued(), r.subscribers())
	}
}

// comeAndGo waits again and again until stop is closed. After that nobody gives up, and nobody may have to.
func (r *queueTest) comeAndGo(
	c *locker.Client, random *rand.Rand, stop <-chan struct{}, served, gaveUp *atomic.Int32,
) error {
	for {
		over := false
		select {
		case <-stop:
			over = true
		default:
		}
		patience := patient
		if !over && random.IntN(4) == 0 {
			patience = time.Duration(random.Int64N(int64(50 * time.Millisecond)))
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		err := r.attend(ctx, c)
		cancel()
		switch {
		case err == nil:
			served.Add(1)
		case errors.Is(err, errWitness):
			return err
		default:
			gaveUp.Add(1)
		}
		if over && err == nil {
			return nil
		}
		if over && errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("waited for ever: %w", err)
		}
	}
}

var errWitness = errors.New("two at once, or a token that has not risen")

// attend is serve where requests fail, so that the witness is no server. What is not given back expires.
func (r *queueTest) attend(ctx context.Context, c *locker.Client) error {
	m := c.Mutex(r.name)
	if err := m.Lock(ctx); err != nil {
		return err
	}
	token := m.FencingToken()
	inside, last := r.inside.Add(1), r.last.Swap(token)
	time.Sleep(tick)
	others := r.inside.Add(-1)
	if token != 0 && (inside != 1 || others != 0 || last >= token) && m.FencingToken() == token {
		return fmt.Errorf("%w: %d at once, token %d after %d", errWitness, max(inside, others+1), token, last)
	}
	_ = m.Unlock(context.Background())
	return nil
}

// stormOver does harm at random for as long as lasting, and undoes what would last.
func stormOver(r *queueTest, proxies []*testserver.Proxy, random *rand.Rand, lasting time.Duration) {
	ctx := context.Background()
	pause := func(atMost time.Duration) { time.Sleep(time.Duration(random.Int64N(int64(atMost)))) }
	for end := time.Now().Add(lasting); time.Now().Before(end); pause(60 * time.Millisecond) {
		p := proxies[random.IntN(len(proxies))]
		switch random.IntN(9) {
		case 0:
			p.ResetConns()
		case 1:
			p.DropReplies(true)
			pause(100 * time.Millisecond)
			p.DropReplies(false)
			p.ResetConns()
		case 2:
			p.HoldReplies(true)
			pause(100 * time.Millisecond)
			p.ReleaseReplies()
		case 3:
			p.HoldRequests(true)
			pause(100 * time.Millisecond)
			p.ReleaseRequests()
		case 4:
			p.Sever()
			pause(300 * time.Millisecond)
			p.Restore()
		case 5:
			r.direct.Do(ctx, "CLIENT", "KILL", "TYPE", "pubsub")
		case 6:
			r.direct.Do(ctx, "CLIENT", "KILL", "TYPE", "normal")
		case 7:
			r.direct.ScriptFlush(ctx)
		case 8:
			r.direct.Del(ctx, r.queueKey())
		}
	}
}
