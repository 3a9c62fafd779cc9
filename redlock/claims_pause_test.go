//go:build unix

package redlock_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/child"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// resource is what the lock protects: a value on a server of its own, and how it guards itself.
type resource struct {
	rdb   *goredis.Client
	guard guard
}

type guard string

const (
	unguarded guard = "unguarded"
	larger    guard = "larger" // refuses a token below the largest that it has seen
	same      guard = "same"   // refuses all but the last to have begun, as a random value allows
)

const writing = `
local seen = redis.call('HGET', KEYS[1], 'token') or '0'
if ARGV[1] == 'larger' and tonumber(ARGV[2]) < tonumber(seen) or ARGV[1] == 'same' and ARGV[2] ~= seen then
  return 0
end
redis.call('HSET', KEYS[1], 'token', ARGV[2], 'value', ARGV[3])
return 1`

// begin is what a holder does first. With a random value that is to write the value; here the token
// serves as one, of which the resource looks at nothing but whether it is the same.
func (r resource) begin(t testing.TB, token uint64) {
	t.Helper()
	if r.guard == same {
		require.NoError(t, r.rdb.HSet(t.Context(), string(r.guard), "token", token).Err())
	}
}

// write reports whether the resource has accepted the value.
func (r resource) write(t testing.TB, token uint64, value string) bool {
	t.Helper()
	accepted, err := r.rdb.Eval(t.Context(), writing, []string{string(r.guard)}, string(r.guard), token, value).Bool()
	require.NoError(t, err)
	return accepted
}

func (r resource) value(t *testing.T) string {
	t.Helper()
	v, err := r.rdb.HGet(t.Context(), string(r.guard), "value").Result()
	require.NoError(t, err)
	return v
}

// What a child is to do is in its environment, and when on its standard input.
const (
	childRole     = "LOCKER_CLAIMS_ROLE"
	childNodes    = "LOCKER_CLAIMS_NODES"
	childResource = "LOCKER_CLAIMS_RESOURCE" // address, guard, and how far the holder gets before it is told to write
)

func init() { child.Register("claims", runChild) }

// runChild is what the child processes of the tests below do.
func runChild(t testing.TB) {
	role := map[string]func(testing.TB, childSide){"write": childWrites, "take": childTakes}[os.Getenv(childRole)]
	require.NotNil(t, role, os.Getenv(childRole))
	role(t, childSide{strings.Fields(os.Getenv(childNodes)), bufio.NewScanner(os.Stdin)})
}

type childSide struct {
	addrs []string
	in    *bufio.Scanner
}

// await returns when the parent says so.
func (c childSide) await(t testing.TB, word string) {
	t.Helper()
	require.True(t, c.in.Scan(), "the parent is gone")
	require.Equal(t, word, c.in.Text())
}

// childWrites holds the lock, with renewal, makes sure of it, and is told to write some time later,
// when it does not look again: whatever it might look at, it could be stopped after that.
func childWrites(t testing.TB, c childSide) {
	on := strings.Fields(os.Getenv(childResource))
	r := resource{connect(t, on[0], heedingCtx), guard(on[1])}
	beginsAtOnce := on[2] == "begun"
	client, err := locker.New(driverOver(t, c.addrs, heedingCtx, unhurried(short)), locker.WithTTL(short))
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	m := client.Mutex(contested)
	token := take(t, m)
	if beginsAtOnce {
		r.begin(t, token)
	}
	require.Equal(t, token, m.FencingToken(), "it decides to write")
	fmt.Println("decided", token)

	c.await(t, "write")
	knows := m.FencingToken() == 0 // by now, but it does not look
	if !beginsAtOnce {
		r.begin(t, token)
	}
	fmt.Println("wrote", r.write(t, token, "old"), knows)

	select {
	case <-m.Lost():
	case <-time.After(patient):
		t.Error("Lost does not fire")
	}
	fmt.Println("unlocked", errors.Is(m.Unlock(t.Context()), locker.ErrLost))
}

// takerTTL leaves a test time enough to stop childTakes before a time-out does.
const takerTTL = 2 * short

// childTakes makes one attempt to take the lock, on connections that are there already.
func childTakes(t testing.TB, c childSide) {
	m := contender(t, c.addrs, takerTTL)
	take(t, m)
	require.NoError(t, m.Unlock(t.Context()))
	fmt.Println("ready")
	c.await(t, "take")
	start := time.Now()
	err := m.TryLock(t.Context())
	fmt.Println("took", err == nil, m.FencingToken(), time.Since(start) > takerTTL, err)
}

func startChild(t *testing.T, role string, addrs []string, env ...string) *child.Process {
	t.Helper()
	return child.Start(t, "claims", append(env, childRole+"="+role, childNodes+"="+strings.Join(addrs, " "))...)
}

// pausedHolder has a process take the lock, decide to write, and be stopped before it does. Another
// takes over and writes; the first wakes, and writes. It returns whether that was accepted, and the
// newer holder's token.
func pausedHolder(t *testing.T, g guard, before string) (r resource, accepted bool, newer uint64) {
	t.Helper()
	q := five(t)
	server := testserver.Redis(t)
	r = resource{connect(t, server.Addr(), heedingCtx), g}
	p := startChild(t, "write", q.addrs(), childResource+"="+strings.Join([]string{server.Addr(), string(g), before}, " "))
	older, err := strconv.ParseUint(p.Says("decided")[0], 10, 64)
	require.NoError(t, err)
	p.Stop()

	second := contender(t, q.addrs(), long)
	newer = take(t, second)
	assert.Greater(t, newer, older)
	r.begin(t, newer)
	require.True(t, r.write(t, newer, "new"), "the holder's write")

	p.Continue()
	p.Tell("write")
	said := p.Says("wrote")
	assert.Equal(t, "true", said[1], "once awake its FencingToken is 0, had it looked")
	assert.Equal(t, []string{"true"}, p.Says("unlocked"), "Lost has fired, and Unlock says ErrLost")
	require.NoError(t, second.Extend(t.Context()), "the first has left the second's lock alone")
	require.Equal(t, newer, second.FencingToken())
	return r, said[0] == "true", newer
}

// Kleppmann: a holder that is stopped past its TTL, by a garbage collection for one, goes on to
// write, and what the next holder has written is lost. True, with renewal as without, and though
// the first would know of its loss if it looked: no check before the write closes the gap between
// the two.
func TestKleppmann_aHolderPausedPastItsTTLOverwritesTheNext(t *testing.T) {
	testwait.OnlyNightly(t, "TestKleppmann_aResourceThatComparesTokensRefusesThePausedHolder is the same with a fence")
	t.Parallel()
	r, accepted, _ := pausedHolder(t, unguarded, "decided")
	assert.True(t, accepted)
	assert.Equal(t, "old", r.value(t), "the newer holder's update is lost")
}

// Kleppmann: a resource that refuses tokens smaller than one it has seen is safe from that. True.
func TestKleppmann_aResourceThatComparesTokensRefusesThePausedHolder(t *testing.T) {
	t.Parallel()
	r, accepted, newer := pausedHolder(t, larger, "decided")
	assert.False(t, accepted)
	assert.Equal(t, "new", r.value(t))
	assert.True(t, r.write(t, newer, "newest"), "the holder of the newer token goes on")
}

// What neither text says of that resource: it refuses a token once it has seen a larger one, and
// not before. The next holder has the lock and has read, but not written; the first wakes and
// writes, and is let in; then the next writes what it made of the value that it had read. The
// first's update is lost. It helps to show the token with the first read, not only with the write.
func TestFence_refusesOnlyWhatIsOlderThanWhatItHasSeen(t *testing.T) {
	testwait.OnlyNightly(t, "the rule of fences is shown by those of fence, and not by Redlock")
	for name, shown := range map[string]bool{"the token comes with the write": false, "and with the read": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := five(t)
			r := resource{connect(t, testserver.Redis(t).Addr(), heedingCtx), larger}
			first, second := contender(t, q.addrs(), short), contender(t, q.addrs(), long)
			older := take(t, first)
			require.True(t, r.write(t, older, "0"))

			newer := take(t, second) // the first's time is over, and it does not look
			require.Zero(t, first.FencingToken())
			read := r.value(t)
			if shown {
				require.True(t, r.write(t, newer, read), "what it reads it writes back: the token is seen")
			}
			accepted := r.write(t, older, "of the first")
			require.True(t, r.write(t, newer, read+", and of the second"))
			assert.Equal(t, !shown, accepted, "what the second has read was not the last by then")
			assert.Equal(t, "0, and of the second", r.value(t))
		})
	}
}

// antirez: a random value will do, too, if the holder writes it to the resource when it begins, and
// the resource accepts a write only while it is there. True for a holder that was stopped after it
// had begun.
func TestAntirez_aRandomValueRefusesThePausedHolderThatHasBegun(t *testing.T) {
	testwait.OnlyNightly(t, "it is a variation of TestKleppmann_aResourceThatComparesTokensRefusesThePausedHolder")
	t.Parallel()
	r, accepted, newer := pausedHolder(t, same, "begun")
	assert.False(t, accepted)
	assert.Equal(t, "new", r.value(t))
	assert.True(t, r.write(t, newer, "newest"))
}

// Kleppmann: a random value does not rise, so it is no fencing token. True: of two that differ the
// resource cannot tell which is the older. A holder that was stopped before it began is let in, and
// who holds the lock is kept out.
func TestKleppmann_aRandomValueLetsInThePausedHolderThatBeginsLate(t *testing.T) {
	testwait.OnlyNightly(t, "it is a variation of TestKleppmann_aResourceThatComparesTokensRefusesThePausedHolder")
	t.Parallel()
	r, accepted, newer := pausedHolder(t, same, "decided")
	assert.True(t, accepted)
	assert.Equal(t, "old", r.value(t), "the newer holder's update is lost")
	assert.False(t, r.write(t, newer, "newest"), "and it cannot write another")
}

// Kleppmann: the replies that grant the lock wait in the client's socket while it is stopped past
// the TTL; when it wakes it reads them, and believes that it holds. antirez: it looks at the clock
// after the replies, and knows better. True is what antirez says.
func TestAntirez_aClientPausedWhileItsRepliesWaitTakesNothing(t *testing.T) {
	testwait.OnlyNightly(t, "the simulation has processes that stall before they look at the time, and a stop takes two TTLs here")
	t.Parallel()
	q := five(t)
	addrs, network := q.proxied(t)
	p := startChild(t, "take", addrs)
	p.Says("ready")
	q.eventuallyFree(t, contested, nodeA, nodeB, nodeC, nodeD, nodeE)
	for _, proxy := range network {
		proxy.HoldReplies(true)
	}
	p.Tell("take")
	eventually(t, "a majority has granted the lock", func() bool { return count(q.heldAt(t, contested)) >= 3 })
	p.Stop()
	for _, proxy := range network {
		proxy.ReleaseReplies() // to a process that does not run
	}
	second := contender(t, q.addrs(), long)
	newer := take(t, second)
	time.Sleep(10 * tick) // nodes count whole milliseconds, and the first has to be past its TTL for certain
	p.Continue()
	said := p.Says("took")
	assert.Equal(t, []string{"false", "0", "true"}, said[:3], "taken, token, stopped for longer than the TTL: %v", said)
	require.NoError(t, second.Extend(t.Context()), "what the first gives back is not the second's")
	assert.Equal(t, newer, second.FencingToken())
	require.NoError(t, second.Unlock(t.Context()))
}

// Kleppmann: nothing needs to be stopped, the network may delay the write as long. True: it was
// sent by a holder in its time and arrives in another's. The fencing token is what tells.
func TestKleppmann_aWriteDelayedInTheNetworkArrivesInTheNextHoldersTime(t *testing.T) {
	testwait.OnlyNightly(t, "TestKleppmann_aResourceThatComparesTokensRefusesThePausedHolder shows what the fence does")
	t.Parallel()
	for g, survives := range map[guard]string{unguarded: "old", larger: "new"} {
		t.Run(string(g), func(t *testing.T) {
			t.Parallel()
			q := five(t)
			server := testserver.Redis(t)
			proxy := testserver.NewProxy(t, server.Addr())
			unwearied := func(o *goredis.Options) { o.MaxRetries, o.ReadTimeout = -1, patient }
			far := resource{connect(t, proxy.Addr(), unwearied), g}
			near := resource{connect(t, server.Addr(), heedingCtx), g}
			require.NoError(t, far.rdb.Ping(t.Context()).Err()) // the connection is there
			first := contender(t, q.addrs(), short)
			older := take(t, first)
			proxy.HoldRequests(true)
			written := make(chan bool)
			go func() {
				accepted, err := far.rdb.Eval(t.Context(), writing, []string{string(g)}, string(g), older, "old").Bool()
				written <- accepted && err == nil
			}()
			eventually(t, "the write is on its way", func() bool { requests, _ := proxy.Held(); return requests > 0 })
			require.Equal(t, older, first.FencingToken(), "sent in time")

			newer := take(t, contender(t, q.addrs(), long))
			require.True(t, near.write(t, newer, "new"))
			proxy.ReleaseRequests()
			assert.Equal(t, survives == "old", <-written)
			assert.Equal(t, survives, near.value(t))
		})
	}
}
