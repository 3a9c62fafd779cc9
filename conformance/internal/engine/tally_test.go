package engine

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
