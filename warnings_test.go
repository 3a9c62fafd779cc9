package locker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

// cautious is a driver that warns.
type cautious struct {
	*fakeDriver
	warnings func(ctx context.Context) ([]string, error)
	asked    atomic.Int64
}

func (d *cautious) Warnings(ctx context.Context) ([]string, error) {
	d.asked.Add(1)
	return d.warnings(ctx)
}

func two(context.Context) ([]string, error) { return []string{"a is 1; set it to 2", "b is off"}, nil }

func TestWarnings_areThoseOfTheDriver(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		d := &cautious{fakeDriver: &fakeDriver{b: b}, warnings: two}
		c := clientOf(t, d)
		warnings, err := c.Warnings(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []string{"a is 1; set it to 2", "b is off"}, warnings)
		d.warnings = func(context.Context) ([]string, error) { return nil, errRefused }
		_, err = c.Warnings(t.Context())
		require.ErrorIs(t, err, errRefused)
		warnings, err = b.client(t).Warnings(t.Context())
		require.NoError(t, err, "a Driver that does not ask")
		assert.Empty(t, warnings)
		require.NoError(t, c.Close())
		_, err = c.Warnings(t.Context())
		require.ErrorIs(t, err, locker.ErrClosed)
	})
}

func TestWarnings_endWithTheirContext(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := clientOf(t, &cautious{fakeDriver: &fakeDriver{b: b}, warnings: func(ctx context.Context) ([]string, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Warnings(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(start))
		_, err = c.Warnings(t.Context())
		require.ErrorContains(t, err, "has not answered")
		assert.Equal(t, 6*time.Second, time.Since(start))
	})
}

func TestLog_ofWarningsOnceAfterTheFirstGrant(t *testing.T) {
	lines := logged(t, func(t *testing.T, b *backend, opts ...locker.Option) {
		d := &cautious{fakeDriver: &fakeDriver{b: b}, warnings: two}
		c := clientOf(t, d, opts...)
		b.next(acquire, unreachable)
		require.Error(t, c.Mutex("x").TryLock(t.Context()))
		synctest.Wait()
		assert.Zero(t, d.asked.Load(), "nothing is granted yet")
		for range 3 {
			m := c.Mutex("x")
			require.NoError(t, m.Lock(t.Context()))
			require.NoError(t, m.Unlock(t.Context()))
			synctest.Wait()
		}
		assert.EqualValues(t, 1, d.asked.Load())

		silent := &cautious{fakeDriver: &fakeDriver{b: b}, warnings: two}
		require.NoError(t, clientOf(t, silent).Mutex("y").Lock(t.Context()))
		synctest.Wait()
		assert.Zero(t, silent.asked.Load(), "there is nowhere to log")
	})
	assert.Equal(t, []string{
		`level=WARN msg="backend may break a promise" why="a is 1; set it to 2"`,
		`level=WARN msg="backend may break a promise" why="b is off"`,
	}, lines)
}

// Neither Lock nor Close waits for an answer, and a failure is no matter.
func TestLog_ofWarningsThatDoNotCome(t *testing.T) {
	lines := logged(t, func(t *testing.T, b *backend, opts ...locker.Option) {
		c := clientOf(t, &cautious{fakeDriver: &fakeDriver{b: b}, warnings: func(ctx context.Context) ([]string, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}, opts...)
		start := time.Now()
		m := c.Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		require.NoError(t, m.Unlock(t.Context()))
		require.NoError(t, c.Close())
		assert.Zero(t, time.Since(start))

		failing := clientOf(t, &cautious{fakeDriver: &fakeDriver{b: b}, warnings: func(context.Context) ([]string, error) {
			return []string{"lost"}, errors.New("boom")
		}}, opts...)
		m = failing.Mutex("y")
		require.NoError(t, m.Lock(t.Context()))
		require.NoError(t, m.Unlock(t.Context()))
	})
	assert.Equal(t, []string{""}, lines)
}

func TestWarnings_ofAClientThatIsClosedMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := clientOf(t, &cautious{fakeDriver: &fakeDriver{b: b}, warnings: func(ctx context.Context) ([]string, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		answer := make(chan error, 1)
		go func() {
			_, err := c.Warnings(context.Background())
			answer <- err
		}()
		synctest.Wait()
		require.NoError(t, c.Close())
		require.ErrorIs(t, <-answer, locker.ErrClosed, "as Inspect says it")
	})
}
