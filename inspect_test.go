package locker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

// inspecting makes a Client over a driver that says this of locks.
func (b *backend) inspecting(
	t *testing.T, inspect func(ctx context.Context, name string) (locker.State, error), opts ...locker.Option,
) *locker.Client {
	t.Helper()
	return clientOf(t, &seer{&fakeDriver{b: b}, inspect}, opts...)
}

// silent is a backend that does not answer.
func silent(ctx context.Context, _ string) (locker.State, error) {
	<-ctx.Done()
	return locker.State{}, ctx.Err()
}

func TestInspect_isWhatTheDriverSaysOfTheQualifiedName(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		said := map[string]locker.State{"app%3A:x": {
			Held: true, Holder: locker.Participant{ID: "7", Metadata: "host 7"}, Left: time.Second, Token: 3,
			Waiters: []locker.Participant{{ID: "8"}},
		}}
		c := b.inspecting(t, func(_ context.Context, name string) (locker.State, error) { return said[name], nil },
			locker.WithPrefix("app:"), locker.WithTokenBase(100))
		s, err := c.Inspect(t.Context(), "x")
		require.NoError(t, err)
		want := said["app%3A:x"]
		want.Token = 103
		assert.Equal(t, want, s)
		s, err = c.Inspect(t.Context(), "y")
		require.NoError(t, err)
		assert.Equal(t, locker.State{}, s, "to no token nothing is added")
	})
}

func TestInspect_ofADriverThatCannot(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		_, err := b.client(t).Inspect(t.Context(), "x")
		require.ErrorIs(t, err, locker.ErrUnsupported)
		assert.EqualError(t, err, `locker: inspect "x": not supported by the backend: it does not tell who holds a lock`)
	})
}

func TestInspect_asksNobody(t *testing.T) {
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errShutdown)
	for what, c := range map[string]struct {
		ctx  context.Context
		name string
		is   error
		says string
	}{
		"of a name that is empty":         {t.Context(), "", nil, "name is empty"},
		"of a name that is not UTF-8":     {t.Context(), "\xff", nil, "not UTF-8"},
		"when the context has ended":      {ended, "x", context.Canceled, ""},
		"when the context has said why":   {ended, "x", errShutdown, ""},
		"when the Client has been closed": {t.Context(), "x", locker.ErrClosed, ""},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *backend) {
				client := b.inspecting(t, func(context.Context, string) (locker.State, error) {
					t.Error("asked")
					return locker.State{}, nil
				})
				if c.is == locker.ErrClosed { //nolint:errorlint // it is that one
					require.NoError(t, client.Close())
				}
				s, err := client.Inspect(c.ctx, c.name)
				assert.Equal(t, locker.State{}, s)
				var e *locker.Error
				require.ErrorAs(t, err, &e)
				assert.Equal(t, "inspect", e.Op)
				assert.Equal(t, c.name, e.Name)
				require.ErrorContains(t, err, c.says)
				if c.is != nil {
					require.ErrorIs(t, err, c.is)
				}
			})
		})
	}
}

func TestInspect_isTheClientLibrarysError(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.inspecting(t, func(context.Context, string) (locker.State, error) {
			return locker.State{Held: true}, errRefused
		})
		s, err := c.Inspect(t.Context(), "x")
		require.ErrorIs(t, err, errRefused)
		assert.Equal(t, locker.State{}, s)
	})
}

func TestInspect_endsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c, ctx := b.inspecting(t, silent), ending(t, time.Second)
		assert.Equal(t, time.Second, took(func() {
			_, err := c.Inspect(ctx, "x")
			interruptedBy(ctx, t, err)
		}))
	})
}

func TestInspect_takesHalfATTLAtMost(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		deadlines := make(chan time.Time, 2)
		c := b.inspecting(t, func(ctx context.Context, name string) (locker.State, error) {
			deadline, _ := ctx.Deadline()
			deadlines <- deadline
			return silent(ctx, name)
		})
		assert.Equal(t, ttl/2, took(func() {
			_, err := c.Inspect(t.Context(), "x")
			noErrorIs(t, err, context.DeadlineExceeded, context.Canceled, locker.ErrClosed, locker.ErrHeld)
		}))
		assert.Equal(t, time.Now(), <-deadlines, "the Driver knows how long it has")
		_, err := c.Inspect(ending(t, time.Second), "x")
		require.Error(t, err)
		assert.Equal(t, time.Now(), <-deadlines)
	})
}

func TestInspect_endsWithTheClient(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.inspecting(t, func(ctx context.Context, _ string) (locker.State, error) {
			<-ctx.Done()
			return locker.State{}, errors.New("the connection was closed")
		})
		looking := inBackground(func() error { _, err := c.Inspect(t.Context(), "x"); return err })
		synctest.Wait()
		closing := inBackground(c.Close)
		assert.Zero(t, took(func() { require.ErrorIs(t, <-looking, locker.ErrClosed) }))
		require.NoError(t, <-closing)
	})
}
