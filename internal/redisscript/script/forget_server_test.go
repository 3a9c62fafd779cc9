package script

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

func TestForgotten_tokensRise(t *testing.T) {
	testwait.LeftToModels(t)
	s := testserver.Redis(t, testserver.RedisClock())
	n, seeds := 2000, uint64(1)
	if testwait.Exhaustive() {
		n, seeds = 10_000, 2
	}
	for _, test := range []struct {
		name string
		step func(*ledger) error
	}{
		{"any clock", (*ledger).anyClock},
		{"proposals", (*ledger).proposals},
		{"proposals, and a clock that is set back", (*ledger).setBack},
		{"lost data", (*ledger).lostData},
	} {
		t.Run(test.name, func(t *testing.T) {
			for seed := range seeds {
				for l := newLedger(t, s, seed); l.grants < n; {
					require.NoError(t, test.step(l), "seed %d, after %d grants", seed, l.grants)
				}
			}
		})
	}
}

// The limit: a clock that is two minutes fast for a moment, in which nobody takes a lock, makes the
// server forget what it had Granted, and leaves no trace: all that is left is the mark, which has
// no names. It is the same whether the name that is taken next is the one that was forgotten or a
// new one. So is the answer: the proposal or the clock, which is right for a new name, and too
// small for one whose token was ahead of the clock.
func TestForgotten_cannotTellAForgottenNameFromANewOneIfTheClockWasFastForAMoment(t *testing.T) {
	s := testserver.Redis(t, testserver.RedisClock())
	const name, other = "locker:1", "locker:2"
	for _, c := range []struct {
		name            string
		ahead, proposal time.Duration // of the clock: the latest token, and the next proposal; 0: the clock is the token
		back            time.Duration // after the latest take: to where the clock is set
	}{
		{"a proposal was ahead of the clock", 5 * time.Second, time.Second / 2, time.Second},
		{"the clock is set back to before the latest take", 0, 0, -450 * time.Millisecond},
	} {
		// history has a name taken and forgotten, and returns what is left, and what comes of
		// taking name then.
		history := func(taken string) (mark map[string]string, err error) {
			l := newLedger(t, s, 1)
			l.anywhere, l.drivers = true, l.drivers[:1]
			proposal := func(ahead time.Duration) int64 {
				if ahead == 0 {
					return 0
				}
				return l.now() + ahead.Microseconds()
			}
			for _, ahead := range []time.Duration{0, c.ahead} { // the second is covered by the mark that the first has written
				l.shift(time.Second / 2)
				require.NoError(t, l.take(taken, proposal(ahead)))
				h := l.holds[len(l.holds)-1]
				_, err := l.eval(Release, h.keys, h.owner, h.token, 0)
				require.NoError(t, err)
			}
			l.shift(2 * Keep)
			l.visit()
			l.shift(time.Duration(l.latest-l.now())*time.Microsecond + c.back)
			require.Equal(t, []string{markKey}, l.rdb.Keys(t.Context(), "*").Val())
			mark = l.rdb.HGetAll(t.Context(), markKey).Val()
			delete(mark, "clock")
			return mark, l.take(name, proposal(c.proposal))
		}
		left, err := history(other)
		require.NoError(t, err, c.name)
		fell := false
		for tries := 0; !fell && tries < 20; tries++ { // what takes half a second shows nothing
			again, err := history(name)
			require.Equal(t, left, again, c.name)
			fell = err != nil
		}
		assert.True(t, fell, "%s: the token falls", c.name)
	}
}

// A hand-over reads the lock alone, as the take of a free one does, while the mark covers it.
func TestMark_isNotReadForAHandOverThatItCovers(t *testing.T) {
	t.Parallel()
	covered := &Mark{}
	covered.covered.Store(9e15)
	for _, c := range []struct {
		name  string
		mark  *Mark
		ahead int64 // of the clock, the last token
		reads int   // of the lock, and of the mark
	}{
		{"covered", covered, 0, 1},
		{"covered, and the last token is ahead by 20 s", covered, 20e6, 1},
		{"the cover has ended", &Mark{}, 0, 2},
		{"the clock may not pass the token before that is forgotten", covered, 31e6, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := atServerOf(t, testserver.Redis(t))
			h := s.ask("holder", ttl, 0)
			require.EqualValues(t, Granted, h.Status)
			last := h.Token
			if c.ahead > 0 {
				last = s.serverTime() + c.ahead
				require.EqualValues(t, 1, s.run(Raise, []any{"holder", last, ""}))
			}
			require.EqualValues(t, Held, s.ask("-P/waiter", ttl, 0).Status)
			require.EqualValues(t, 1, s.release("holder", last, 0))
			require.Equal(t, ">-P/waiter", s.owner())
			before := s.server.Calls()["hmget"]
			a := s.take(Take, "-P/waiter", ttl, Due{9e15, 0}.Arg(c.mark, 0), "", 0)
			require.EqualValues(t, Granted, a.Status)
			assert.Greater(t, a.Token, last)
			assert.Equal(t, c.reads, s.server.Calls()["hmget"]-before)
			assert.Equal(t, c.reads > 1, a.covered > 0, "only what was read is told")
		})
	}
}

// After a failover, or behind a proxy, a Client hears of the marks of several servers.
func TestMark_whatThatOfAnotherServerCoversDoesNotCount(t *testing.T) {
	const now int64 = 1_700_000_000_000_000
	m := &Mark{}
	m.OnGrant(Answer{Now: now, covered: now + coverMicros})
	m.OnGrant(Answer{Now: now + coverMicros/2})
	assert.Equal(t, now+coverMicros, m.covered.Load(), "by the same clock")
	m.OnGrant(Answer{Now: now - coverMicros})
	assert.Zero(t, m.covered.Load(), "by a clock that is behind, the mark of which is not known")
}

// ledger puts the scripts, on a server whose clock it moves, through all faults of the memory of
// tokens, and keeps the largest of each name.
type ledger struct {
	*atServer
	rand    *rand.Rand
	largest map[string]int64
	holds   []ledgerHold
	drivers []*Mark
	copied  map[string]copied
	shifted time.Duration // the server's clock, in all
	highest time.Duration // that shifted was
	latest  int64         // when a token was last granted or raised, by the server's clock
	peak    int64         // of that clock since
	grants  int

	anywhere bool // the clock may be set back to just before the latest grant, too
}

const ledgerNames = 4

type ledgerHold struct {
	name, owner string
	token       int64
	keys        []string
}

func newLedger(t *testing.T, s *testserver.RedisServer, seed uint64) *ledger {
	t.Helper()
	l := &ledger{
		atServer: atServerOf(t, s), rand: rand.New(rand.NewPCG(seed, 1)),
		largest: map[string]int64{},
	}
	s.ShiftClock(time.Until(l.rdb.Time(t.Context()).Val()) * -1) // back from where the last has left it
	require.NoError(t, l.rdb.FlushAll(t.Context()).Err())
	for range 3 {
		l.drivers = append(l.drivers, &Mark{})
	}
	return l
}

func (l *ledger) eval(script *Script, keys []string, args ...any) (any, error) {
	return goredis.NewScript(script.Source).Run(context.Background(), l.rdb, keys, args...).Result()
}

func (l *ledger) chance(percent int) bool { return l.rand.IntN(100) < percent }

func (l *ledger) name() string { return fmt.Sprintf("locker:%d", l.rand.IntN(ledgerNames)) }

// jump is about as long as names are remembered, or anything up to some days.
func (l *ledger) jump() time.Duration {
	if l.chance(60) {
		return time.Duration(l.rand.Int64N(int64(3 * Keep)))
	}
	return time.Duration(math.Pow(10, 7+l.rand.Float64()*8)) // 10 ms to 11 days
}

func (l *ledger) shift(d time.Duration) {
	l.server.ShiftClock(d)
	l.shifted += d
	l.highest = max(l.highest, l.shifted)
	l.peak = max(l.peak, l.now())
}

// hidden reports whether the clock stands where the mark does not show that it was set back: after
// a while without grants, to just before the tokens of the latest.
func (l *ledger) hidden() bool {
	return l.peak > l.latest+50e6 && l.now() > l.latest-12e5 && l.now() < l.latest+33e6
}

// take is a take by one of the drivers, of a token that it proposes if that is not 0. It returns
// what is wrong.
func (l *ledger) take(name string, proposal int64) error {
	h := ledgerHold{name: name, owner: strconv.FormatUint(l.rand.Uint64(), 36), keys: Keys(name)}
	d := l.drivers[l.rand.IntN(len(l.drivers))]
	expires := Expiry(2 * time.Second)
	if !l.anywhere && l.hidden() {
		l.shift(-40 * time.Second)
	}
	by := Due{9e15, 0}
	script := Take
	if proposal != 0 {
		script = Propose
	}
	reply, err := l.eval(script, h.keys, h.owner, expires, by.Arg(d, proposal), "")
	if err != nil {
		return err
	}
	a, err := ParseAnswer(reply, proposal)
	if err != nil || a.Status != Granted {
		return err
	}
	d.OnGrant(a)
	l.latest, l.peak = a.Now, a.Now
	h.token = a.Token
	l.holds = append(l.holds, h)
	l.grants++
	if a.Token <= l.largest[name] {
		return fmt.Errorf("%s: token %d after %d, by a clock of %d", name, a.Token, l.largest[name], a.Now)
	}
	l.largest[name] = a.Token
	return nil
}

// end releases a hold, or has it expire.
func (l *ledger) end() {
	if len(l.holds) == 0 {
		return
	}
	i := l.rand.IntN(len(l.holds))
	h := l.holds[i]
	l.holds = append(l.holds[:i], l.holds[i+1:]...)
	if l.chance(80) {
		_, _ = l.eval(Release, h.keys, h.owner, h.token, 0)
	}
}

// raiseOne raises the token of a hold, by more than the server takes now and then.
func (l *ledger) raiseOne() {
	if len(l.holds) == 0 {
		return
	}
	h := &l.holds[l.rand.IntN(len(l.holds))]
	wanted := h.token + l.jump().Microseconds()
	if reply, err := l.eval(Raise, h.keys[:1], h.owner, wanted, ""); err == nil && reply == any(int64(1)) {
		h.token, l.latest, l.peak = wanted, l.now(), l.now()
		l.largest[h.name] = max(l.largest[h.name], wanted)
	}
}

// visit has the server remove what has expired.
func (l *ledger) visit() {
	for i := range ledgerNames {
		l.rdb.Exists(context.Background(), Key(fmt.Sprintf("locker:%d", i)))
	}
}

const markKey = "{locker:%mark}"

func (l *ledger) now() int64 { return time.Now().Add(l.shifted).UnixMicro() }

// Clocks jump by days in both directions, and names are forgotten.
func (l *ledger) anyClock() error {
	switch roll := l.rand.IntN(100); {
	case roll < 3:
		l.shift(l.jump())
	case roll < 6:
		l.shift(-l.jump())
	case roll < 11:
		l.visit()
	case roll < 14:
		return l.thereAndBack()
	case roll < 15:
		l.rdb.Del(context.Background(), Key(l.name())) // evicted
	case roll < 58:
		l.end()
	default:
		return l.take(l.name(), 0)
	}
	return nil
}

// thereAndBack has the clock go on until all is forgotten, and be set back to before the latest
// grant, with nothing in between.
func (l *ledger) thereAndBack() error {
	l.shift(time.Duration(l.rand.IntN(50)) * time.Second)
	err := l.take(l.name(), 0)
	l.shift(2 * Keep)
	l.visit()
	l.shift(-2*Keep - time.Duration(l.rand.IntN(60))*time.Second)
	return err
}

// Clients propose by clocks of their own, and the server's is set back by less than names are
// remembered for.
func (l *ledger) proposals() error {
	switch {
	case l.chance(10):
		l.shift(l.jump())
	case l.chance(3):
		l.shift(-max(min(l.jump(), l.shifted-(l.highest-Keep/2+2*time.Second)), 0))
	case l.chance(5):
		l.visit()
	case l.chance(1):
		l.raiseOne()
	case l.chance(50):
		l.end()
	case l.chance(70):
		skew := l.rand.Int64N(300e6) - 150e6
		if l.chance(10) {
			skew = l.rand.Int64N(2e12) - 1e12 // days
		}
		return l.take(l.name(), max(l.now()+skew, 1))
	default:
		return l.take(l.name(), 0)
	}
	return nil
}

// Clients propose, and the server's clock is set back by minutes and more. Somebody takes a lock
// before it has come near the latest token again.
func (l *ledger) setBack() error {
	if !l.chance(3) {
		return l.proposals()
	}
	l.shift(-3*Keep - l.jump())
	if err := l.take(l.name(), l.now()); err != nil {
		return err
	}
	return l.take(fmt.Sprintf("locker:new/%d", l.grants), l.now())
}

// The server loses all, or the mark, or what it was told since a while, as a replica that takes
// over has; its clock goes on.
func (l *ledger) lostData() error {
	ctx := context.Background()
	switch roll := l.rand.IntN(100); {
	case roll < 3:
		l.shift(l.jump())
	case roll < 8:
		l.visit()
	case roll < 9:
		l.rdb.FlushAll(ctx)
	case roll < 11:
		l.rdb.Del(ctx, markKey)
	case roll < 13:
		l.rdb.Del(ctx, Key(l.name()))
	case roll < 15:
		l.copied = l.contents()
	case roll < 17:
		l.rdb.FlushAll(ctx)
		for key, c := range l.copied {
			l.rdb.RestoreReplace(ctx, key, c.left, c.dump)
		}
	case roll < 58:
		l.end()
	default:
		return l.take(l.name(), 0)
	}
	return nil
}

// copied is a key as a replica has it.
type copied struct {
	dump string
	left time.Duration // until it expires; 0: never
}

func (l *ledger) contents() map[string]copied {
	ctx, all := context.Background(), map[string]copied{}
	for _, key := range l.rdb.Keys(ctx, "*").Val() {
		all[key] = copied{l.rdb.Dump(ctx, key).Val(), max(l.rdb.PTTL(ctx, key).Val(), 0)}
	}
	return all
}
