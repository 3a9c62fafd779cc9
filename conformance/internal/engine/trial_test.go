package engine

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTrial_endsWithItsFirstVerdict(t *testing.T) {
	for what, c := range map[string]struct {
		limit time.Duration
		body  func(*Trial)
		says  string
	}{
		"nothing seen":          {time.Minute, func(*Trial) {}, ""},
		"the first of two":      {time.Minute, func(trial *Trial) { trial.Decide(errSeen); trial.Decide(errors.New("later")) }, "two at once"},
		"a Fatalf":              {time.Minute, func(trial *Trial) { trial.Fatalf("no server at %s", "localhost") }, "no server at localhost"},
		"in a story of its own": {time.Minute, func(trial *Trial) { trial.Together(func() {}, func() { trial.Decide(errSeen) }) }, "two at once"},
		"a body that hangs":     {time.Millisecond, func(trial *Trial) { <-trial.Context().Done() }, "did not end within 1ms"},
	} {
		t.Run(what, func(t *testing.T) {
			trial := NewTrial(t)
			defer trial.Close()
			_, err := trial.Run(c.limit, func() { c.body(trial) })
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.says)
			_, doubt := errors.AsType[*Doubt](err)
			assert.Equal(t, what == "a body that hangs", doubt, "a call of the Locker that hangs has a limit of its own")
			assert.Equal(t, doubt, errors.Is(err, ErrInDoubt), "the machine may be too slow, however often it is tried")
			_, fatal := errors.AsType[*Fatal](err)
			assert.Equal(t, what == "a Fatalf", fatal)
		})
	}
}

func TestUnless(t *testing.T) {
	u := &Unless{Quiet: errSeen, Seen: ErrInDoubt}
	assert.Equal(t, errSeen, u.on(false))
	_, doubted := errors.AsType[*Doubt](u.on(true))
	assert.True(t, doubted)
	require.ErrorIs(t, u.on(true), ErrInDoubt)
	assert.NoError(t, (&Unless{Seen: ErrInDoubt}).on(false))
}

// What a trial has begun has ended when it is closed.
func TestTrial_closeWaits(t *testing.T) {
	trial := NewTrial(t)
	ended := false
	trial.Spawn(func() {
		<-trial.Context().Done()
		ended = true
	})
	_, err := trial.Run(time.Minute, func() {})
	require.NoError(t, err)
	trial.Close()
	assert.True(t, ended)
}

// What takes long and is not the Locker's adds to the limit.
func TestTrial_allows(t *testing.T) {
	trial := NewTrial(t)
	defer trial.Close()
	_, err := trial.Run(20*time.Millisecond, func() {
		trial.Allow(time.Minute)
		time.Sleep(60 * time.Millisecond)
	})
	require.NoError(t, err)
}

func TestLateness(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		what               string
		gap                time.Duration
		every              int // ticks
		paused, overloaded bool
	}{
		{"in time", 10 * ms, 1, false, false},
		{"late at times", 30 * ms, 100, false, false},
		{"late often", 30 * ms, 10, false, true},
		{"a pause in a long time", 150 * ms, 1000, true, false},
	} {
		var l lateness
		for tick := range 1000 {
			gap := machineTick
			if tick%c.every == 0 {
				gap = c.gap
			}
			l.add(gap)
		}
		assert.Equal(t, c.paused, l.paused(), "%s: %+v", c.what, l)
		assert.Equal(t, c.overloaded, l.overloaded(), "%s: %+v", c.what, l)
	}
	assert.False(t, lateness{}.overloaded(), "before the first tick")
}

// A watch counts the time up to its last tick.
func TestWatchMachine(t *testing.T) {
	stop := watchMachine()
	time.Sleep(100 * time.Millisecond)
	l := stop()
	assert.Greater(t, l.took, 50*time.Millisecond)
	assert.LessOrEqual(t, l.longest, l.took)
}

func TestWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told atomic.Int32
		Watchdog(time.Minute, func() { told.Add(1) })
		time.Sleep(time.Minute - 1)
		synctest.Wait()
		assert.Zero(t, told.Load())
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.EqualValues(t, 1, told.Load(), "once")

		stopped := Watchdog(time.Minute, func() { t.Error("the call has ended") })
		time.Sleep(time.Minute / 2)
		stopped.Stop()
		stopped.next() // it was due already
		time.Sleep(time.Hour)
	})
}

// A process that stands still, for however long, finds one timer due when it goes on.
func TestWatchdog_aPauseIsOneBeat(t *testing.T) {
	told := false
	w := Watchdog(beats*time.Hour, func() { told = true })
	for range beats - 1 {
		w.next()
	}
	assert.False(t, told)
	w.next()
	assert.True(t, told)
}

// scripted is a trial with a given result.
type scripted struct {
	err    error
	paused bool
}

var (
	errSeen            = errors.New("two at once")
	clean, cleanPaused = scripted{}, scripted{paused: true}
	doubted            = scripted{err: &Doubt{Seen: errSeen}}
	doubtedPaused      = scripted{err: &Doubt{Seen: errSeen}, paused: true}
)

func TestTally(t *testing.T) {
	const all = 4 // but one of five
	sure, surePaused := scripted{err: errSeen}, scripted{err: errSeen, paused: true}
	for _, c := range []struct {
		what    string
		allowed int
		trials  []scripted
		says    string // of a promise that was not kept
	}{
		{"nothing seen", 0, []scripted{clean}, ""},
		{"nothing seen, on a machine that pauses", 0, []scripted{cleanPaused, cleanPaused, cleanPaused}, ""},
		{"once is not each time", all, []scripted{doubted, doubted, clean, clean, clean}, ""},
		{"all but once", all, []scripted{doubted, doubted, doubted, doubted, clean}, ""},
		{"each time", all, []scripted{doubted, doubted, doubted, doubted, doubted}, "in each of 5 trials"},
		{"each time, on a machine that pauses at first", 0, []scripted{doubtedPaused, doubtedPaused, doubtedPaused, doubtedPaused, doubtedPaused, doubtedPaused, doubted, doubted}, "in each of 8"},
		{"not each time, on a machine that pauses at first", 0, []scripted{doubtedPaused, doubtedPaused, doubtedPaused, doubtedPaused, doubtedPaused, doubtedPaused, clean}, ""},
		{"each time, on a machine that always pauses", all, slices.Repeat([]scripted{doubtedPaused}, 5), "in doubt: in each of 5 trials, and in 5 of them"},
		{"certain", all, []scripted{doubted, sure}, "two at once"},
		{"certain, after a trial that kept it", all, []scripted{doubted, clean, sure}, "two at once"},
		{"certain, on a machine that pauses", all, []scripted{surePaused}, "two at once"},
		{"seen whenever the machine does not pause", all, []scripted{cleanPaused, doubted, doubted, cleanPaused, cleanPaused}, "in all of 5 trials but 3"},
		{"seen once when it does not pause", all, []scripted{cleanPaused, doubted, doubtedPaused, doubtedPaused, doubtedPaused}, ""},

		{"one, and none is tolerated", 0, []scripted{doubted, clean, clean, clean, clean}, "in 1 of 5 trials"},
		{"the last of some that are hidden", 0, []scripted{cleanPaused, doubted, clean, clean, clean}, "in 1 of 5 trials"},
		{"one, when the machine paused", 0, []scripted{doubtedPaused, clean, clean, clean, clean}, ""},
		{"one of two when it did not pause", 0, []scripted{doubtedPaused, doubted, clean, clean, clean}, "in 2 of 5 trials"},
		{"one that says nothing", 0, []scripted{{err: &Doubt{Seen: ErrInDoubt}}, clean, clean, clean, clean}, ""},
		{"as many as are tolerated", 2, []scripted{doubted, doubted, clean, clean, clean}, ""},
		{"one more than are tolerated", 2, []scripted{doubted, clean, doubted, clean, doubted}, "in 3 of 5 trials"},
	} {
		t.Run(c.what, func(t *testing.T) {
			before := *doubtsFlag
			*doubtsFlag = c.allowed
			defer func() { *doubtsFlag = before }()
			var n Tally
			var err error
			for i, trial := range c.trials {
				assert.False(t, i > 0 && n.enough(), "after %d trials another is one too many", i)
				if err = trial.err; n.add(trial.err, trial.paused) {
					break
				}
				err = n.verdict()
			}
			if n.Trials < len(c.trials) || c.says != "two at once" && n.Excused < n.Trials && !n.enough() {
				t.Errorf("after %d trials of %d: %+v", n.Trials, len(c.trials), n)
			}
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.says)
			require.ErrorIs(t, err, errSeen)
		})
	}
}

func TestTally_ofTrialsThatSayNothing(t *testing.T) {
	var n Tally
	for _, seen := range []error{ErrInDoubt, errSeen, ErrInDoubt} {
		require.False(t, n.add(&Doubt{Seen: seen}, false))
	}
	err := n.verdict()
	require.ErrorIs(t, err, ErrInDoubt)
	assert.EqualError(t, err, ErrInDoubt.Error()+": 2 of 3 trials say nothing; in the others, the last time: "+errSeen.Error())
}

// A soak is not repeated because the machine paused in it.
func TestTally_ofASoak(t *testing.T) {
	ends := func(long bool, err error) bool {
		n := Tally{Long: long}
		return n.add(err, true) || n.enough()
	}
	assert.False(t, ends(false, nil), "for some seconds")
	assert.True(t, ends(true, nil))
	assert.False(t, ends(true, &Doubt{Seen: errSeen}))
}

// What is listed as broken is not said to be kept because it was not seen once.
func TestConfirm(t *testing.T) {
	confirm := func(luck bool, verdicts ...error) (err error, trials int) {
		err = new(Tally).Confirm(luck, func() (bool, error) {
			trials++
			return false, verdicts[min(trials, len(verdicts))-1]
		})
		return err, trials
	}
	doubt := &Doubt{Seen: errSeen}
	for _, c := range []struct {
		what     string
		luck     bool
		verdicts []error
		broken   bool
		trials   int
	}{
		{"certain", false, []error{errSeen}, true, 1},
		{"seen at last", false, []error{nil, nil, errSeen}, true, 3},
		{"doubtful", false, []error{doubt}, true, trialsIfKnown},
		{"doubtful once", false, []error{doubt, nil}, true, Trials},
		{"kept", false, []error{nil}, false, Trials},
		{"not seen, where that takes luck", true, []error{nil}, false, 1},
	} {
		t.Run(c.what, func(t *testing.T) {
			err, n := confirm(c.luck, c.verdicts...)
			assert.Equal(t, c.broken, err != nil)
			assert.Equal(t, c.trials, n)
		})
	}
}

// One trial in doubt is none too many, however long it took.
func TestTally_oneDoubtIsNoVerdict(t *testing.T) {
	trials := 0
	var n Tally
	err := n.Run(time.Nanosecond, t.Logf, func() (bool, error) {
		trials++
		return false, &Doubt{Seen: errSeen}
	})
	assert.Equal(t, 2, trials)
	require.ErrorContains(t, err, "in each of 2 trials")
	require.NotErrorIs(t, err, ErrInDoubt)
}
