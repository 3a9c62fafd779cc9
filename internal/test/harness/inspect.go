package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testwait"
)

// Inspection is a backend whose locks are inspected.
type Inspection struct {
	URL string
	TTL time.Duration // the shortest

	// Contents are what there is at the backend, but for times that run.
	Contents func(t testing.TB) string

	// Listening reports whether n Clients are subscribed to releases. It is nil if a waiter is never passed over.
	Listening func(n int) bool

	// Stop has the servers answer nothing; Kill ends them, and comes last. They may be nil.
	Stop func() (resume func())
	Kill func()

	Left            bool // it tells how long a hold lasts
	Since           bool // and since when
	LastToken       bool // it remembers the token of a lock that was released
	TokenWhenWaited bool // it tells the token of a lock for which others wait, or the holder has waited
	Queue           bool // it has one
	IDs             bool // it knows contenders by IDs
	TellsHolder     bool // an ErrHeld of TryLock tells who holds the lock, as Inspect does
	TellsMetadata   bool // with metadata
}

const (
	patient  = time.Minute
	patience = testwait.Patience(patient)
	longTTL  = 20 * time.Second // nothing expires by itself
)

var async = testwait.Go

// Inspect tests what operators do: a Client says of the backend's locks without contending for
// them, lists them, and ends holds by force.
func Inspect(t *testing.T, b Inspection) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Inspection)
	}{
		{"a lock that was never held", neverHeld},
		{"held, and released", heldAndReleased},
		{"waited for", waitedFor},
		{"expired", expired},
		{"names and metadata of any characters", ofAnyCharacters},
		{"readers", readers},
		{"a Downgrade", downgraded},
		{"a forced release hands over and is a loss", forcedRelease},
		{"a forced release ends no other hold", staleForce},
		{"a list has the names that are held", list},
		{"servers that do not answer", silence},
		{"servers that are gone", gone},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, b) })
	}
}

func (b Inspection) open(t *testing.T, opts ...locker.Option) *locker.Client {
	t.Helper()
	return b.renewing(t, longTTL, append([]locker.Option{locker.WithoutRenewal()}, opts...)...)
}

func (b Inspection) renewing(t *testing.T, ttl time.Duration, opts ...locker.Option) *locker.Client {
	t.Helper()
	return testwait.Closed(locker.Open(t.Context(), b.URL, append([]locker.Option{locker.WithTTL(ttl)}, opts...)...))(t)
}

func look(t testing.TB, c *locker.Client, name string) locker.State {
	t.Helper()
	s, err := c.Inspect(testwait.Context(t, patient), name)
	require.NoError(t, err)
	return s
}

// listed returns the names that List has, sorted, each once.
func listed(t testing.TB, c *locker.Client, prefix string) (names []string) {
	t.Helper()
	for name, err := range c.List(testwait.Context(t, patient), prefix) {
		require.NoError(t, err)
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// undisturbed fails if f changes what there is at the backend.
func (b Inspection) undisturbed(t *testing.T, f func()) {
	t.Helper()
	if b.Contents == nil {
		f()
		return
	}
	before := b.Contents(t)
	f()
	assert.Equal(t, before, b.Contents(t), "looking at a lock changes nothing")
}

// wantHeld fails unless s is that of a hold by m with that metadata, for which somebody has waited, or nobody.
func (b Inspection) wantHeld(t *testing.T, s locker.State, m *locker.Mutex, metadata string, waited bool) {
	t.Helper()
	assert.True(t, s.Held)
	assert.Equal(t, metadata, s.Holder.Metadata)
	assert.Equal(t, b.IDs, s.Holder.ID != "", s.Holder.ID)
	if waited && !b.TokenWhenWaited {
		assert.Zero(t, s.Token)
	} else {
		assert.Equal(t, m.FencingToken(), s.Token)
	}
	if b.Left {
		assert.Positive(t, s.Left)
		assert.LessOrEqual(t, s.Left, longTTL)
	} else {
		assert.Zero(t, s.Left)
	}
	assert.Equal(t, b.Since, !s.Since.IsZero(), "%v", s.Since)
	if b.Since {
		assert.Positive(t, time.Since(s.Since)+time.Millisecond)
	}
}

func neverHeld(t *testing.T, b Inspection) {
	c := b.open(t)
	_ = look(t, c, "another") // there is a connection, and what goes with it
	b.undisturbed(t, func() { assert.Equal(t, locker.State{}, look(t, c, "never held")) })
}

func heldAndReleased(t *testing.T, b Inspection) {
	c, other := b.open(t, locker.WithMetadata("host 7")), b.open(t)
	m := c.Mutex("held")
	for range 2 {
		began := time.Now()
		require.NoError(t, m.Lock(t.Context()))
		if b.Since { // on one machine
			assert.WithinRange(t, look(t, other, "held").Since, began.Add(-time.Second), time.Now().Add(time.Second))
		}
		_ = look(t, other, "another")
		b.undisturbed(t, func() {
			for _, who := range []*locker.Client{c, other} {
				s := look(t, who, "held")
				b.wantHeld(t, s, m, "host 7", false)
				assert.Empty(t, s.Waiters)
				assert.Contains(t, listed(t, who, ""), "held")
			}
		})
		b.wantTold(t, other.Mutex("held").TryLock(t.Context()), look(t, other, "held"))
		token := m.FencingToken()
		require.NoError(t, m.Extend(t.Context()), "the hold is undisturbed")
		require.NoError(t, m.Unlock(t.Context()))
		b.until(t, other, "held", "it is released", func(s locker.State) bool { return !s.Held })
		s := look(t, other, "held")
		assert.Equal(t, locker.State{Token: s.Token}, s)
		if b.LastToken {
			assert.GreaterOrEqual(t, s.Token, token, "the latest: of Redlock, also that of a TryLock that a late node has granted")
		} else {
			assert.Zero(t, s.Token)
		}
	}
}

// wantTold fails unless err is ErrHeld with the holder, as far as the backend tells it; s is what Inspect returned.
func (b Inspection) wantTold(t *testing.T, err error, s locker.State) {
	t.Helper()
	require.ErrorIs(t, err, locker.ErrHeld)
	held, tells := errors.AsType[*locker.HeldError](err)
	require.Equal(t, b.TellsHolder, tells, "%v", err)
	if !tells {
		return
	}
	if !b.TellsMetadata {
		s.Holder.Metadata = ""
	}
	assert.Equal(t, s.Holder, held.Holder)
	assert.Equal(t, b.TellsMetadata, strings.HasSuffix(err.Error(), `held by another owner, "host 7"`), "%v", err)
}

// until looks until condition holds.
func (b Inspection) until(t *testing.T, c *locker.Client, name, what string, condition func(locker.State) bool) (s locker.State) {
	t.Helper()
	patience.Until(t, what, func() bool {
		s = look(t, c, name)
		return condition(s)
	})
	return s
}

func waitedFor(t *testing.T, b Inspection) {
	c := b.open(t)
	names := []string{"first", "p/~second", "third\n3/"}
	mutexes := make([]*locker.Mutex, len(names))
	locked := make([]<-chan error, len(names))
	for i, name := range names {
		mutexes[i] = b.open(t, locker.WithMetadata(name)).Mutex("waited for")
		locked[i] = async(func() error { return mutexes[i].Lock(t.Context()) })
		b.until(t, c, "waited for", "everybody has come", func(s locker.State) bool {
			return s.Held && (i == 0 || !b.Queue || len(s.Waiters) == i)
		})
	}
	if !b.Queue { // they poll, and who is the next nobody knows
		require.NoError(t, patience.Result(t, locked[0]))
		b.wantHeld(t, look(t, c, "waited for"), mutexes[0], "first", true)
		return
	}
	b.undisturbed(t, func() { _ = look(t, c, "waited for") })
	if b.Listening != nil {
		patience.Until(t, "all who wait listen", func() bool { return b.Listening(len(names) - 1) })
	}
	for i, m := range mutexes {
		require.NoError(t, patience.Result(t, locked[i]))
		s := look(t, c, "waited for")
		b.wantHeld(t, s, m, names[i], true)
		b.wantWaiters(t, s, names[i+1:])
		if i < len(names)-1 {
			require.NoError(t, patience.Result(t, async(func() error { <-m.Hold().Wanted(); return nil })), "the holder hears that somebody waits")
		}
		require.NoError(t, m.Unlock(t.Context()))
	}
}

func (b Inspection) wantWaiters(t *testing.T, s locker.State, names []string) {
	t.Helper()
	require.Len(t, s.Waiters, len(names))
	ids := map[string]bool{s.Holder.ID: true}
	for i, w := range s.Waiters {
		assert.Equal(t, names[i], w.Metadata)
		if b.IDs {
			assert.False(t, ids[w.ID], "each has an ID of its own")
			ids[w.ID] = true
		}
	}
}

func expired(t *testing.T, b Inspection) {
	c := b.open(t, locker.WithTTL(b.TTL))
	m := c.Mutex("expired")
	require.NoError(t, m.Lock(t.Context()))
	<-m.Hold().Lost()
	s := b.until(t, b.open(t), "expired", "nobody holds it", func(s locker.State) bool { return !s.Held })
	assert.Equal(t, locker.Participant{}, s.Holder)
	assert.Zero(t, s.Left)
	require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
}

func ofAnyCharacters(t *testing.T, b Inspection) {
	all := []string{
		" ", "{", "}", "{}", "{a}b", "%", "%7D", "/", "a/b", "a//b", "..", "locker:a", ">", "a\x00b", "\r\n", "é\U0001F512",
		"zookeeper", strings.Repeat("}/", 300),
	}
	c := b.open(t)
	for i, name := range all {
		m := c.Mutex(name, locker.WithMetadata(name+"\xff"))
		assert.False(t, look(t, c, name).Held, "%q", name)
		require.NoError(t, m.Lock(t.Context()), "%q", name)
		b.wantHeld(t, look(t, c, name), m, name+"\xff", false)
		assert.False(t, look(t, c, fmt.Sprint(name, i)).Held, "%q", name)
	}
}

// hold takes a lock, for as long as a busy machine may need.
func hold(t *testing.T, c *locker.Client, name string) *locker.Hold {
	t.Helper()
	h, err := c.Mutex(name).Acquire(testwait.Context(t, patient))
	require.NoError(t, err)
	return h
}

func forcedRelease(t *testing.T, b Inspection) {
	operator := b.open(t)
	for what, hear := range map[string]func(h *locker.Hold) error{
		"Extend": func(h *locker.Hold) error { return h.Extend(t.Context()) },
		"Unlock": func(h *locker.Hold) error { return h.Unlock(t.Context()) },
		"a renewal": func(h *locker.Hold) error {
			patience.Until(t, "it is lost", func() bool { return h.Err() != nil })
			return h.Err()
		},
	} {
		name, c := "forced "+what, b.open(t)
		if what == "a renewal" {
			c = b.renewing(t, 3*time.Second)
		}
		former := hold(t, c, name)
		waiting := b.open(t).Mutex(name)
		var next *locker.Hold
		served := async(func() (err error) {
			next, err = waiting.Acquire(testwait.Context(t, patient))
			return err
		})
		shown := look(t, operator, name)
		require.NoError(t, operator.ForceRelease(t.Context(), name, shown))
		require.NoError(t, testwait.Patience(longTTL/2).Result(t, served), "the waiter, long before the hold would expire")
		assert.Greater(t, next.Token(), former.Token())
		require.ErrorIs(t, hear(former), locker.ErrLost, what)
		require.ErrorIs(t, operator.Mutex(name).TryLock(t.Context()), locker.ErrHeld, "the next hold is there")
		require.NoError(t, next.Unlock(t.Context()))
	}
}

func staleForce(t *testing.T, b Inspection) {
	c, operator := b.open(t), b.open(t)
	first := hold(t, c, "stale")
	shown := look(t, operator, "stale")
	require.NoError(t, first.Unlock(t.Context()))
	require.ErrorIs(t, operator.ForceRelease(t.Context(), "stale", shown), locker.ErrNotHeld)
	second := hold(t, c, "stale") // of the same process, on the same session if there is one
	require.ErrorIs(t, operator.ForceRelease(t.Context(), "stale", shown), locker.ErrHeld)
	require.NoError(t, second.Extend(t.Context()))
	require.NoError(t, second.Unlock(t.Context()))
}

// many is above the number of locks that a page has, on most backends.
const many = 300

func list(t *testing.T, b Inspection) {
	const own = "list"
	c, operator := b.renewing(t, longTTL), b.open(t)
	released := hold(t, c, own+"/released")
	want := []string{own, own + "/}%{*?[a]\\:é\n", own + "/a/b", own + "%", own + "\x00"}
	for i := range many {
		want = append(want, fmt.Sprintf("%s/%d", own, i))
	}
	holds := []*locker.Hold{hold(t, c, own[1:]), hold(t, c, "other")}
	for _, name := range want {
		holds = append(holds, hold(t, c, name))
	}
	require.NoError(t, released.Unlock(t.Context()))
	assert.ElementsMatch(t, want, listed(t, operator, own))
	assert.Equal(t, want[2:3], listed(t, operator, own+"/a"))
	for _, h := range holds {
		require.NoError(t, h.Unlock(t.Context()), "a hold that was listed")
	}
	assert.Empty(t, listed(t, operator, own))
}

// wantOwn fails unless err is the client library's own or the Driver's, and none of the core's or of a context.
func wantOwn(t *testing.T, op string, err error) {
	t.Helper()
	var e *locker.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, op, e.Op)
	for _, not := range []error{locker.ErrHeld, locker.ErrNotHeld, locker.ErrLost, locker.ErrClosed, locker.ErrUnsupported, context.DeadlineExceeded} {
		require.NotErrorIs(t, err, not)
	}
}

func silence(t *testing.T, b Inspection) {
	if b.Stop == nil {
		t.Skip("there are no servers")
	}
	c := b.open(t)
	_ = look(t, c, "x") // there is a connection
	m := b.open(t, locker.WithTTL(b.TTL), locker.WithoutRenewal()).Mutex("y")
	require.NoError(t, errors.Join(m.Lock(t.Context()), m.Unlock(t.Context()))) // and a session
	resume := b.Stop()
	defer resume()
	ctx := testwait.Context(t, 300*time.Millisecond)
	began := time.Now()
	_, err := c.Inspect(ctx, "x")
	require.Error(t, err)
	assert.Less(t, time.Since(began), longTTL/2, "ctx bounds it")
	for _, not := range []error{locker.ErrHeld, locker.ErrNotHeld, locker.ErrClosed, locker.ErrUnsupported} {
		require.NotErrorIs(t, err, not)
	}
	err = m.TryLock(t.Context())
	var slow interface{ Timeout() bool }
	require.ErrorAs(t, err, &slow)
	assert.True(t, slow.Timeout(), "%v", err)
	resume()
	_ = look(t, c, "x") // as if nothing had happened
}

func gone(t *testing.T, b Inspection) {
	if b.Kill == nil {
		t.Skip("there are no servers")
	}
	c := b.open(t, locker.WithTTL(longTTL/2)) // which bounds it
	_ = look(t, c, "x")
	b.Kill()
	_, inspected := c.Inspect(t.Context(), "x")
	var listed error
	for _, err := range c.List(t.Context(), "") {
		listed = err
	}
	forced := c.ForceRelease(t.Context(), "x", locker.State{Held: true, Token: 7, Holder: locker.Participant{ID: "7"}})
	for op, err := range map[string]error{"inspect": inspected, "list": listed, "forcerelease": forced} {
		wantOwn(t, op, err)
		assert.ErrorContains(t, err, "refused", "%s says what is wrong", op)
	}
}

// readers are shown, and those that were shown end by force: none that has joined since.
func readers(t *testing.T, b Inspection) {
	c := b.open(t)
	share := func(metadata string) *locker.RWMutex {
		m := b.open(t, locker.WithMetadata(metadata)).RWMutex("readers")
		if err := m.RLock(t.Context()); errors.Is(err, locker.ErrUnsupported) {
			t.Skip("there are no shares")
		} else {
			require.NoError(t, err)
		}
		return m
	}
	shown := []*locker.RWMutex{share("a/b~c"), share("two\nlines")}
	s := look(t, c, "readers")
	assert.Equal(t, locker.Participant{}, s.Holder)
	var metadata []string
	ids := map[string]bool{"": true}
	for _, p := range s.Shares {
		metadata = append(metadata, p.Metadata)
		assert.False(t, ids[p.ID], "each has an ID of its own")
		ids[p.ID] = true
	}
	assert.ElementsMatch(t, []string{"a/b~c", "two\nlines"}, metadata)
	joined := share("")
	require.NoError(t, c.ForceRelease(t.Context(), "readers", s))
	for _, m := range shown {
		require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
	}
	require.NoError(t, joined.Extend(t.Context()), "nobody has shown it")
	_ = c.ForceRelease(t.Context(), "readers", s) // again: a backend may remember that it has ended them
	require.NoError(t, joined.Unlock(t.Context()))
}

func downgraded(t *testing.T, b Inspection) {
	c := b.open(t)
	m := b.open(t, locker.WithMetadata("host 7")).RWMutex("downgraded")
	require.NoError(t, m.Lock(t.Context()))
	before := look(t, c, "downgraded")
	if err := m.Downgrade(t.Context()); errors.Is(err, locker.ErrUnsupported) {
		t.Skip("there are no shares")
	} else {
		require.NoError(t, err)
	}
	other := c.RWMutex("downgraded")
	require.NoError(t, other.RLock(t.Context()))
	s := look(t, c, "downgraded")
	require.Len(t, s.Shares, 2)
	assert.Contains(t, []string{s.Shares[0].Metadata, s.Shares[1].Metadata}, "host 7")
	if err := c.ForceRelease(t.Context(), "downgraded", before); err != nil {
		require.ErrorIs(t, err, locker.ErrHeld, "it may have another ID now")
	}
	require.NoError(t, other.Unlock(t.Context()), "nobody has shown it")
}
