package core_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/testwait"
)

func names(ctx context.Context, c *locker.Client, prefix string) (all []string, err error) {
	for name, err := range c.List(ctx, prefix) {
		if err != nil {
			return all, err
		}
		all = append(all, name)
	}
	return all, nil
}

// held is a hold that a Client with a token base of 100 has shown.
var held = locker.State{Held: true, Token: 107}

// requests are those that concern no hold of the Client.
var requests = map[string]func(ctx context.Context, c *locker.Client) error{
	"inspect":      func(ctx context.Context, c *locker.Client) error { _, err := c.Inspect(ctx, "x"); return err },
	"list":         func(ctx context.Context, c *locker.Client) error { _, err := names(ctx, c, "x"); return err },
	"forcerelease": func(ctx context.Context, c *locker.Client) error { return c.ForceRelease(ctx, "x", held) },
	"warnings":     func(ctx context.Context, c *locker.Client) error { _, err := c.Warnings(ctx); return err },
}

func answering(b *backend, answer func(context.Context) error) *operable {
	return &operable{
		fakeDriver: &fakeDriver{b: b},
		inspect: func(ctx context.Context, _ string) (locker.State, error) {
			return locker.State{Held: true}, answer(ctx)
		},
		list: func(string) driver.Pager {
			return func(ctx context.Context) (driver.Page, error) { return driver.Page{Last: true}, answer(ctx) }
		},
		force:    func(ctx context.Context, _ string, _ locker.State) error { return answer(ctx) },
		warnings: func(ctx context.Context) ([]string, error) { return nil, answer(ctx) },
	}
}

type request = func(context.Context) error

// eachRequest runs a test for each of the requests, of a driver that answers so.
func eachRequest(
	t *testing.T, answer func(context.Context) error,
	test func(t *testing.T, c *locker.Client, op string, ask request),
) {
	t.Helper()
	for op, call := range requests {
		t.Run(op, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *backend) {
				c := clientOf(t, answering(b, answer), locker.WithTokenBase(100))
				test(t, c, op, func(ctx context.Context) error { return call(ctx, c) })
			})
		})
	}
}

// A Driver is to heed its contexts. One that does not keeps nobody.
func TestOperator_ofADriverThatHeedsNoContext(t *testing.T) {
	over := make(chan struct{})
	deaf := func(context.Context) error { <-over; return nil }
	eachRequest(t, deaf, func(t *testing.T, c *locker.Client, _ string, ask request) {
		over = make(chan struct{})
		defer close(over)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		took := took(func() { require.ErrorIs(t, ask(ctx), context.DeadlineExceeded) })
		assert.InDelta(t, time.Second, took, float64(100*time.Millisecond))
	})
}

func TestOperator_hearsTheClientLibrarysError(t *testing.T) {
	for _, is := range []error{errRefused, locker.ErrHeld, locker.ErrNotHeld} {
		answer := func(context.Context) error { return is }
		eachRequest(t, answer, func(t *testing.T, c *locker.Client, op string, ask request) {
			err := ask(t.Context())
			require.ErrorIs(t, err, is)
			var e *locker.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, op, e.Op)
			s, _ := c.Inspect(t.Context(), "x")
			assert.Equal(t, locker.State{}, s)
		})
	}
}

func TestOperator_asksNobodyWithAContextThatHasEndedOrOfAClientThatIsClosed(t *testing.T) {
	asked := 0
	answer := func(context.Context) error { asked++; return nil }
	eachRequest(t, answer, func(t *testing.T, c *locker.Client, _ string, ask request) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errShutdown)
		interruptedBy(ctx, t, ask(ctx))
		require.NoError(t, c.Close())
		require.ErrorIs(t, ask(t.Context()), locker.ErrClosed)
	})
	assert.Zero(t, asked)
}

// A request that is not answered ends with its context, after a while, or with the Client.
func TestOperator_ofASilentBackend(t *testing.T) {
	var deadlines []time.Time
	silent := func(ctx context.Context) error {
		deadline, _ := ctx.Deadline()
		deadlines = append(deadlines, deadline)
		<-ctx.Done()
		return ctx.Err()
	}
	eachRequest(t, silent, func(t *testing.T, c *locker.Client, _ string, ask request) {
		deadlines = nil
		ctx := ending(t, time.Second)
		assert.Equal(t, time.Second, took(func() { interruptedBy(ctx, t, ask(ctx)) }))
		assert.Equal(t, ttl/2, took(func() {
			noErrorIs(t, ask(t.Context()), context.DeadlineExceeded, locker.ErrClosed, locker.ErrHeld)
		}), "also 5 s")
		assert.Equal(t, time.Now(), deadlines[1], "the Driver knows how long it has")
		looking := testwait.Go(func() error { return ask(context.Background()) })
		synctest.Wait()
		closing := testwait.Go(c.Close)
		assert.Zero(t, took(func() { require.ErrorIs(t, <-looking, locker.ErrClosed) }))
		require.NoError(t, <-closing)
	})
}

func TestOperator_ofADriverThatCannot(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t)
		for op, request := range requests {
			if op != "warnings" {
				require.ErrorIs(t, request(t.Context(), c), locker.ErrUnsupported, op)
			}
		}
		warnings, err := c.Warnings(t.Context())
		require.NoError(t, err, "it does not ask")
		assert.Empty(t, warnings)
	})
}

type (
	inspects struct{ driver.Driver }
	lists    struct{ driver.Driver }
	releases struct{ driver.Driver }
)

func (inspects) Inspect(context.Context, string) (s driver.State, err error) { return s, nil }

func (lists) List(string) driver.Pager {
	return func(context.Context) (driver.Page, error) { return driver.Page{Last: true}, nil }
}

func (releases) ForceRelease(context.Context, string, driver.State) error { return nil }

// No method is lost because another is not there.
func TestOperator_ofADriverThatHasOneMethod(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		d := &fakeDriver{b: b}
		for only, d := range map[string]driver.Driver{
			"inspect": inspects{d}, "list": lists{d}, "forcerelease": releases{d},
		} {
			c := clientOf(t, d, locker.WithTokenBase(100))
			require.NoError(t, requests[only](t.Context(), c))
		}
	})
}

func TestOperator_ofWhatIsNotValid(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		d := answering(b, func(context.Context) error { t.Error("the Driver was asked"); return nil })
		c := clientOf(t, d, locker.WithTokenBase(100))
		for name, want := range map[string]string{"": "name is empty", "\xff": "not UTF-8"} {
			_, err := c.Inspect(t.Context(), name)
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, c.ForceRelease(t.Context(), name, held), want)
		}
		_, err := names(t.Context(), c, "\xff")
		require.ErrorContains(t, err, "not UTF-8")
		require.ErrorIs(t, c.ForceRelease(t.Context(), "x", locker.State{Token: 107}), locker.ErrNotHeld)
		require.ErrorContains(t, c.ForceRelease(t.Context(), "x", locker.State{Held: true}), "pass what Inspect")
		require.ErrorContains(t, c.ForceRelease(t.Context(), "x", locker.State{Held: true, Token: 100}), "same token base")
	})
}

func TestInspect_isWhatTheDriverSaysOfTheQualifiedName(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		said := map[string]locker.State{"app%3A:x": {
			Held: true, Holder: locker.Participant{ID: "7", Metadata: "host 7"}, Left: time.Second, Token: 3,
			Waiters: []locker.Participant{{ID: "8"}},
		}}
		d := &operable{fakeDriver: &fakeDriver{b: b}, inspect: func(_ context.Context, name string) (locker.State, error) {
			return said[name], nil
		}}
		c := clientOf(t, d, locker.WithPrefix("app:"), locker.WithTokenBase(100))
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

func TestForceRelease_showsTheDriverTheHold(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		var shown []locker.State
		d := &operable{fakeDriver: &fakeDriver{b: b}, force: func(_ context.Context, name string, s locker.State) error {
			assert.Equal(t, "app%3A:x", name)
			shown = append(shown, s)
			return nil
		}}
		c := clientOf(t, d, locker.WithPrefix("app:"), locker.WithTokenBase(100))
		require.NoError(t, c.ForceRelease(t.Context(), "x", held))
		other := locker.State{Held: true, Holder: locker.Participant{ID: "a"}}
		require.NoError(t, c.ForceRelease(t.Context(), "x", other))
		assert.Equal(t, []locker.State{{Held: true, Token: 7}, other}, shown, "without the token base")
	})
}

// listing makes a Client over a driver that lists these pages, and then fails with err unless that
// is nil.
func (b *backend) listing(t *testing.T, asked *int, err error, pages ...driver.Page) *locker.Client {
	t.Helper()
	return clientOf(t, &operable{fakeDriver: &fakeDriver{b: b}, list: func(prefix string) driver.Pager {
		assert.Equal(t, "app%3A:a/", prefix)
		return func(context.Context) (driver.Page, error) {
			if *asked++; *asked > len(pages) {
				return driver.Page{}, err
			}
			page := pages[*asked-1]
			page.Last = *asked == len(pages) && err == nil
			return page, nil
		}
	}}, locker.WithPrefix("app:"))
}

func TestList_isTheNamesOfAllPages(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		asked := 0
		pages := []driver.Page{{Names: []string{"app%3A:a/1", "app%3A:a/app%3A:"}}, {}, {Names: []string{"app%3A:a/2"}}}
		got, err := names(t.Context(), b.listing(t, &asked, nil, pages...), "a/")
		require.NoError(t, err)
		assert.Equal(t, []string{"a/1", "a/app%3A:", "a/2"}, got)
		assert.Equal(t, 3, asked)

		asked = 0
		got, err = names(t.Context(), b.listing(t, &asked, errRefused, pages...), "a/")
		require.ErrorIs(t, err, errRefused)
		assert.Len(t, got, 3, "those that were listed come first")

		asked = 0
		c := b.listing(t, &asked, nil, pages...)
		for name, err := range c.List(t.Context(), "a/") {
			require.NoError(t, err)
			if name == "a/app%3A:" {
				break
			}
		}
		assert.Equal(t, 1, asked, "what is not wanted is not asked for")
		require.NoError(t, c.Close(), "it waits for no list")
	})
}

func TestList_saysHowManyHaveNoNames(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		asked := 0
		c := b.listing(t, &asked, nil, driver.Page{Unnamed: 2}, driver.Page{Names: []string{"app%3A:a/1"}, Unnamed: 1})
		got, err := names(t.Context(), c, "a/")
		require.ErrorIs(t, err, locker.ErrUnsupported)
		require.ErrorContains(t, err, "locker: list: not supported by the backend: 3 more locks are held")
		assert.Equal(t, []string{"a/1"}, got, "the others come first")
	})
}

// Who holds the lock is in the error of a TryLock, and of a Lock whose context ends while another
// holds it.
func TestHeldError_isInTheErrorOfWhoDoesNotGetTheLock(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		said := &locker.HeldError{Holder: locker.Participant{ID: "7", Metadata: "host 7"}}
		c := clientOf(t, scripted(b, func(context.Context, *lease) (time.Duration, error) { return time.Hour, said }))
		tried, ctx := c.Mutex("x").TryLock(t.Context()), ending(t, time.Second)
		waited := c.Mutex("x").Lock(ctx)
		require.ErrorIs(t, waited, context.DeadlineExceeded)
		for _, err := range []error{tried, waited} {
			require.ErrorIs(t, err, locker.ErrHeld)
			held, ok := errors.AsType[*locker.HeldError](err)
			require.True(t, ok)
			assert.Equal(t, said.Holder, held.Holder)
		}
		assert.EqualError(t, tried, `locker: trylock "x": the lock is held by another owner, "host 7"`)
	})
}

func two(context.Context) ([]string, error) { return []string{"a is 1; set it to 2", "b is off"}, nil }

func TestWarnings_areThoseOfTheDriverAndAreLoggedOnceAfterTheFirstGrant(t *testing.T) {
	lines := logged(t, func(t *testing.T, b *backend, opts ...locker.Option) {
		asked := 0
		d := &operable{fakeDriver: &fakeDriver{b: b}, warnings: func(ctx context.Context) ([]string, error) { asked++; return two(ctx) }}
		c := clientOf(t, d, opts...)
		b.next(acquire, unreachable, unreachable, unreachable)
		require.Error(t, c.Mutex("x").TryLock(t.Context()))
		synctest.Wait()
		assert.Zero(t, asked, "nothing is granted yet")
		for range 3 {
			m := c.Mutex("x")
			require.NoError(t, m.Lock(t.Context()))
			require.NoError(t, m.Unlock(t.Context()))
			synctest.Wait()
		}
		assert.Equal(t, 1, asked)
		warnings, err := c.Warnings(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []string{"a is 1; set it to 2", "b is off"}, warnings)

		require.NoError(t, clientOf(t, d).Mutex("y").Lock(t.Context()))
		synctest.Wait()
		assert.Equal(t, 2, asked, "without a logger nobody asks")
	})
	assert.Equal(t, []string{
		`level=WARN msg="backend may break a promise" why="a is 1; set it to 2"`,
		`level=WARN msg="backend may break a promise" why="b is off"`,
	}, lines)
}

// Neither Lock nor Close waits for an answer, and a failure is no matter.
func TestWarnings_thatDoNotCome(t *testing.T) {
	lines := logged(t, func(t *testing.T, b *backend, opts ...locker.Option) {
		for _, ask := range []func(context.Context) ([]string, error){
			func(ctx context.Context) ([]string, error) { <-ctx.Done(); return nil, ctx.Err() },
			func(context.Context) ([]string, error) { return []string{"lost"}, errRefused },
		} {
			start := time.Now()
			c := clientOf(t, &operable{fakeDriver: &fakeDriver{b: b}, warnings: ask}, opts...)
			m := c.Mutex("x")
			require.NoError(t, m.Lock(t.Context()))
			require.NoError(t, m.Unlock(t.Context()))
			require.NoError(t, c.Close())
			assert.Zero(t, time.Since(start))
		}
	})
	assert.Equal(t, []string{""}, lines)
}
