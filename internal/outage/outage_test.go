package outage_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/outage"
)

const ttl = 10 * time.Second

var (
	errUnreachable = errors.New("unreachable")
	errRefused     = errors.New("refused")
	errSilence     = errors.New("no answer")
)

// heard keeps what an Outage has told.
type heard []error

func (h *heard) outage() *outage.Outage {
	return &outage.Outage{
		TTL: ttl, Answered: func(err error) { *h = append(*h, err) }, Patience: 500 * time.Millisecond,
		Within: context.WithTimeout,
		Explain: func(ctx, rctx context.Context, err error) error {
			if err != nil && ctx.Err() == nil && rctx.Err() != nil {
				return errSilence
			}
			return err
		},
		Final:   func(err error) bool { return errors.Is(err, errRefused) },
		Silence: errSilence,
	}
}

func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func unreachable(context.Context) error { return errUnreachable }

func bubble(t *testing.T, f func(t *testing.T, o *outage.Outage, h *heard)) {
	synctest.Test(t, func(t *testing.T) {
		h := new(heard)
		f(t, h.outage(), h)
	})
}

// The core waits for an attempt for half a TTL, and is to hear why it failed.
func TestAsk_ridesOutALittleLessThanHalfATTL(t *testing.T) {
	for name, f := range map[string]func(context.Context) error{"refused connections": unreachable, "hangs": hang} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, o *outage.Outage, h *heard) {
				began := time.Now()
				require.Error(t, o.Ask(t.Context(), f))
				took := time.Since(began)
				assert.Less(t, took, ttl/2)
				assert.Greater(t, took, ttl/3)
				assert.Greater(t, len(*h), 2)
				assert.Less(t, len(*h), 100, "with pauses between them")
			})
		})
	}
}

func TestAsk_countsFromTheFirstFailureSinceTheLastAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, o *outage.Outage, _ *heard) {
		failing := func(d time.Duration) func(context.Context) error {
			began := time.Now()
			return func(ctx context.Context) error {
				if time.Since(began) < d {
					return unreachable(ctx)
				}
				return nil
			}
		}
		for range 3 {
			require.NoError(t, o.Ask(t.Context(), failing(ttl*2/5)))
		}
		require.ErrorIs(t, o.Ask(t.Context(), failing(ttl)), errUnreachable)
		began := time.Now()
		require.ErrorIs(t, o.Ask(t.Context(), unreachable), errUnreachable, "the outage goes on")
		assert.Less(t, time.Since(began), ttl/20)
	})
}

func TestAsk_takesAnAnswerForWhatItIs(t *testing.T) {
	bubble(t, func(t *testing.T, o *outage.Outage, h *heard) {
		calls := 0
		require.ErrorIs(t, o.Ask(t.Context(), func(context.Context) error { calls++; return errRefused }), errRefused)
		assert.Equal(t, 1, calls)
		assert.Empty(t, *h)
	})
}

func TestAsk_growsMorePatient(t *testing.T) {
	bubble(t, func(t *testing.T, o *outage.Outage, _ *heard) {
		var given []time.Duration
		require.NoError(t, o.Ask(t.Context(), func(ctx context.Context) error {
			deadline, _ := ctx.Deadline()
			given = append(given, time.Until(deadline))
			if len(given) < 4 {
				return errUnreachable
			}
			return nil
		}))
		assert.Equal(t, o.Patience, given[0])
		assert.IsIncreasing(t, given)
		require.NoError(t, o.Ask(t.Context(), func(ctx context.Context) error {
			deadline, _ := ctx.Deadline()
			assert.Equal(t, o.Patience, time.Until(deadline), "until there is an answer")
			return nil
		}))
	})
}

func TestAsk_prefersAFailureThatSaysWhy(t *testing.T) {
	bubble(t, func(t *testing.T, o *outage.Outage, h *heard) {
		calls := 0
		require.ErrorIs(t, o.Ask(t.Context(), func(ctx context.Context) error {
			if calls++; calls == 2 {
				return errUnreachable
			}
			return hang(ctx)
		}), errUnreachable)
		assert.Equal(t, errSilence, (*h)[0])
		assert.Equal(t, errUnreachable, (*h)[len(*h)-1])
	})
}

func TestAsk_endsWithItsContext(t *testing.T) {
	for name, f := range map[string]func(context.Context) error{"in a request": hang, "in a pause": unreachable} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, o *outage.Outage, _ *heard) {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
				defer cancel()
				began := time.Now()
				require.ErrorIs(t, o.Ask(ctx, f), context.DeadlineExceeded)
				assert.Equal(t, 30*time.Millisecond, time.Since(began))
				require.ErrorIs(t, o.Ask(t.Context(), unreachable), errUnreachable)
			})
		})
	}
}

func TestTTL_isWhatAContextLeavesHalfOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		assert.Equal(t, time.Minute, outage.TTL(t.Context(), time.Minute))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		assert.Equal(t, 6*time.Second, outage.TTL(ctx, time.Minute))
		time.Sleep(time.Hour)
		assert.Positive(t, outage.TTL(ctx, time.Minute), "also of one that has ended")
	})
}
