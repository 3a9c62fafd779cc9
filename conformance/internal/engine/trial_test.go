package engine

import (
	"errors"
	"testing"
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
