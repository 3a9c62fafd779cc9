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
	childNodes    = "LOCKER_CLAIMS_NODES"
	childResource = "LOCKER_CLAIMS_RESOURCE" // address, guard, and how far the holder gets before it is told to write
)

func init() {
	child.Register("claims", childWrites)
	child.Register("waiters", childWaits)
}

// childWrites holds the lock, with renewal, makes sure of it, and is told to write some time later,
// when it does not look again: whatever it might look at, it could be stopped after that.
func childWrites(t testing.TB) {
	on := strings.Fields(os.Getenv(childResource))
	r := resource{connect(t, on[0], heedingCtx), guard(on[1])}
	beginsAtOnce := on[2] == "begun"
	client, err := locker.New(driverOver(t, strings.Fields(os.Getenv(childNodes)), heedingCtx, unhurried(short)), locker.WithTTL(short))
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	m := client.Mutex(contested)
	token := take(t, m)
	if beginsAtOnce {
		r.begin(t, token)
	}
	require.Equal(t, token, m.FencingToken(), "it decides to write")
	fmt.Println("decided", token)

	_, err = bufio.NewReader(os.Stdin).ReadString('\n')
	require.NoError(t, err, "the parent is gone")
	knows := m.FencingToken() == 0 // by now, but it does not look
	if !beginsAtOnce {
		r.begin(t, token)
	}
	fmt.Println("wrote", r.write(t, token, "old"), knows)

	select {
	case <-m.Hold().Lost():
	case <-time.After(patient):
		t.Error("Lost does not fire")
	}
	fmt.Println("unlocked", errors.Is(m.Unlock(t.Context()), locker.ErrLost))
}

// pausedHolder has a process take the lock, decide to write, and be stopped before it does. Another
// takes over and writes; the first wakes, and writes. It returns whether that was accepted, and the
// newer holder's token.
func pausedHolder(t *testing.T, g guard, before string) (r resource, accepted bool, newer uint64) {
	t.Helper()
	q := five(t)
	server := testserver.Redis(t)
	r = resource{connect(t, server.Addr(), heedingCtx), g}
	p := child.Start(t, "claims", childNodes+"="+strings.Join(q.addrs(), " "),
		childResource+"="+strings.Join([]string{server.Addr(), string(g), before}, " "))
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

// Kleppmann: a holder that is paused past its TTL, by a garbage collection for example, goes on to
// write, and the next holder's update is lost; a resource that refuses tokens below the largest it
// has seen is safe from that. True, also with renewal: no check before the write closes the gap
// between the two. antirez: a random value will do, too, if the holder writes it to the resource
// when it begins. Kleppmann: it is no fencing token, because it does not rise. Both are true: it
// refuses a holder that was paused after it had begun, and not one that begins late.
func TestKleppmann_aPausedHolderOverwritesTheNextUnlessTheResourceComparesTokens(t *testing.T) {
	for _, c := range []struct {
		guard    guard
		paused   string // before or after it had begun
		accepted bool   // its write
		goesOn   bool   // the next holder
	}{
		{unguarded, "decided", true, true},
		{larger, "decided", false, true},
		{same, "begun", false, true},
		{same, "decided", true, false},
	} {
		t.Run(string(c.guard)+", "+c.paused, func(t *testing.T) {
			t.Parallel()
			if c.guard != larger {
				testwait.OnlyNightly(t, "it is a variation")
			}
			r, accepted, newer := pausedHolder(t, c.guard, c.paused)
			assert.Equal(t, c.accepted, accepted)
			assert.Equal(t, map[bool]string{true: "old", false: "new"}[accepted], r.value(t))
			assert.Equal(t, c.goesOn, r.write(t, newer, "newest"))
		})
	}
}

// childWaits has waiters come, and says when all have had the lock.
func childWaits(t testing.TB) {
	c := unhurriedClient(t, strings.Fields(os.Getenv(childNodes)))
	done := make(chan error)
	for range 3 {
		go func() {
			m := c.Mutex(contested)
			if err := m.Lock(t.Context()); err != nil {
				done <- err
				return
			}
			done <- m.Unlock(t.Context())
		}()
	}
	for range 3 {
		require.NoError(t, <-done)
	}
	fmt.Println("served")
}

// Three waiters of a process that is stopped cost the others one claim, and have their turn when it
// goes on.
func TestWait_aStoppedProcessCostsTheOthersOneClaim(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 5)
	c := unhurriedClient(t, q.addrs())
	h := q.held(t, c)
	p := child.Start(t, "waiters", childNodes+"="+strings.Join(q.addrs(), " "))
	q.eventuallyQueueing(t, 3, 0, 1, 2, 3, 4)
	w := &crowd{t: t}
	w.come(t.Context(), c, 5)
	q.eventuallyQueueing(t, 8, 0, 1, 2, 3, 4)
	p.Stop()
	start := time.Now()
	require.NoError(t, h.Unlock(t.Context()))
	w.waitServed()
	took := time.Since(start)
	t.Log("the others have waited", took)
	assert.Less(t, took, 6*time.Second, "three claims of two seconds")
	p.Continue()
	p.Says("served")
	q.eventuallyQueueing(t, 0, 0, 1, 2, 3, 4)
	q.eventuallyFree(t, contested, 0, 1, 2, 3, 4)
}
