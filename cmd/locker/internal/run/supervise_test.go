package run

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/cmd/locker/internal/outcome"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/locktest"
	"github.com/go-locker/locker/memory"
)

// fakeJob notes what is done to it. It dies when it is killed, or also of a request.
type fakeJob struct {
	polite  bool
	exited  chan error
	leaves  int // processes that outlive it, until they are killed
	result  error
	done    []string
	seconds []float64 // since it began
	began   time.Time
}

func newFakeJob() *fakeJob { return &fakeJob{exited: make(chan error, 3), began: time.Now()} }

func (j *fakeJob) note(what string) {
	j.done, j.seconds = append(j.done, what), append(j.seconds, time.Since(j.began).Seconds())
}

func (j *fakeJob) Signal(s os.Signal) { j.note(s.String()) }

func (j *fakeJob) Terminate() {
	j.note("terminate")
	if j.polite {
		j.exited <- nil
	}
}

func (j *fakeJob) Kill() {
	j.note("kill")
	j.leaves = 0
	select {
	case j.exited <- errors.New("killed"):
	default:
	}
}

func (j *fakeJob) Wait(func() bool) { j.result = <-j.exited }

func (j *fakeJob) Remains() bool { return j.leaves > 0 }

func (j *fakeJob) Reap() error {
	j.note("reap")
	return j.result
}

// supervised has watch look after a job under a hold of 8 s that nobody renews.
func supervised(t *testing.T, test func(t *testing.T, c *locker.Client, p *plan, j *fakeJob)) {
	synctest.Test(t, func(t *testing.T) {
		c := testwait.Closed(memory.New(locker.WithTTL(8*time.Second), locker.WithoutRenewal()))(t)
		h, err := c.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		test(t, c, newPlan(h), newFakeJob())
	})
}

func isLost(t *testing.T, err error) {
	t.Helper()
	o, ok := errors.AsType[*outcome.Error](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, outcome.Lost, o.Code, "%v", err)
}

func TestWatch_ofAJobOfWhichSomethingIsKnownToRun_givesThatItsTime(t *testing.T) {
	supervised(t, func(t *testing.T, _ *locker.Client, p *plan, j *fakeJob) {
		lasts := time.Until(p.hold.Deadline())
		j.polite, j.leaves = true, 1
		isLost(t, p.watch(j, nil))
		assert.Equal(t, []string{"terminate", "kill", "kill", "reap"}, j.done, "nothing is signalled once the command is waited for")
		assert.InDelta(t, (lasts * 15 / 16).Seconds(), j.seconds[1], 0.011)
	})
}

// It is over before anybody has noticed, as after Ctrl-Z.
func TestWatch_ofAJobThatEndsAfterTheExpiry_killsWhatItHasLeft(t *testing.T) {
	supervised(t, func(t *testing.T, c *locker.Client, p *plan, j *fakeJob) {
		j.leaves = 1
		require.NoError(t, c.Close())
		j.exited <- nil
		isLost(t, p.watch(j, nil))
		assert.Contains(t, j.done, "kill")
		assert.Zero(t, j.leaves)
	})
}

// busy is a job that ends while it is handed a signal, which takes until the lock is about to
// expire.
type busy struct {
	*fakeJob
	until time.Time
}

func (j busy) Signal(os.Signal) {
	j.exited <- nil
	time.Sleep(time.Until(j.until))
}

func TestWatch_ofAJobThatEndsInTime_whileWeAreBusy_isNoLoss(t *testing.T) {
	for range 30 { // which of the two is looked at first is chance
		supervised(t, func(t *testing.T, _ *locker.Client, p *plan, j *fakeJob) {
			signals := make(chan os.Signal, 1)
			signals <- os.Interrupt
			time.Sleep(time.Second)
			require.NoError(t, p.watch(busy{j, p.hold.Deadline().Add(-p.grace / 2)}, signals))
			assert.Equal(t, []string{"reap"}, j.done)
		})
	}
}

// The command's work was done in time. A signal ends the wait for an answer.
func TestUnlock_thatIsNotAnswered_keepsTheResultOfTheCommand(t *testing.T) {
	said, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	require.NoError(t, err)
	stderr := os.Stderr
	os.Stderr = said
	defer func() { os.Stderr = stderr; _ = said.Close() }()
	for _, outage := range []func(*locktest.Client){(*locktest.Client).Down, (*locktest.Client).Hang} {
		synctest.Test(t, func(t *testing.T) {
			locks := locktest.New(t, locker.WithTTL(8*time.Second))
			h, err := locks.Mutex("x").Acquire(t.Context())
			require.NoError(t, err)
			outage(locks)
			result := errors.New("exit status 3")
			signals := make(chan os.Signal, 1)
			signals <- os.Interrupt
			began := time.Now()
			assert.Equal(t, result, unlock(h, result, signals))
			assert.LessOrEqual(t, time.Since(began), 2*time.Second)
		})
	}
	text, err := os.ReadFile(said.Name())
	require.NoError(t, err)
	assert.Equal(t, 2, strings.Count(string(text), "the lock is not released, and will expire"))
}

func TestUnlock_ofALockThatWasLostBeforeTheCommandEnded(t *testing.T) {
	for _, result := range []error{nil, &outcome.Error{Code: outcome.Lost}} { // or 79 is the command's own
		supervised(t, func(t *testing.T, _ *locker.Client, p *plan, _ *fakeJob) {
			time.Sleep(9 * time.Second)
			assert.False(t, p.lasts())
			err := unlock(p.hold, result, nil)
			isLost(t, err)
			require.ErrorIs(t, err, locker.ErrLost)
			isLost(t, supervise(p.hold, nil, nil)) // nothing is started
		})
	}
}
