package core_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
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

// operable is a driver that lists, and ends holds, as a test says.
type operable struct {
	*fakeDriver
	list  func(prefix string) driver.Pager
	force func(ctx context.Context, name string, shown locker.State) error
}

func (d *operable) List(prefix string) driver.Pager { return d.list(prefix) }

func (d *operable) ForceRelease(ctx context.Context, name string, shown locker.State) error {
	return d.force(ctx, name, shown)
}

// listing makes a Client over a driver that lists these pages, and then fails with err, or has had the last one.
func (b *backend) listing(t *testing.T, asked *int, err error, pages ...driver.Page) *locker.Client {
	t.Helper()
	return clientOf(t, &operable{fakeDriver: &fakeDriver{b: b}, list: func(prefix string) driver.Pager {
		assert.Equal(t, "app%3A:a/", prefix)
		return func(ctx context.Context) (driver.Page, error) {
			deadline, ok := ctx.Deadline()
			assert.True(t, ok)
			assert.LessOrEqual(t, time.Until(deadline), ttl/2)
			if *asked++; *asked > len(pages) {
				return driver.Page{}, err
			}
			page := pages[*asked-1]
			page.Last = *asked == len(pages) && err == nil
			return page, nil
		}
	}}, locker.WithPrefix("app:"))
}

func names(ctx context.Context, c *locker.Client, prefix string) (all []string, err error) {
	for name, err := range c.List(ctx, prefix) {
		if err != nil {
			return all, err
		}
		all = append(all, name)
	}
	return all, nil
}

func TestList_isTheNamesOfAllPages(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		asked := 0
		c := b.listing(t, &asked, nil, driver.Page{Names: []string{"app%3A:a/1", "app%3A:a/app%3A:"}}, driver.Page{}, driver.Page{Names: []string{"app%3A:a/2"}})
		got, err := names(t.Context(), c, "a/")
		require.NoError(t, err)
		assert.Equal(t, []string{"a/1", "a/app%3A:", "a/2"}, got)
		assert.Equal(t, 3, asked)
	})
}

// What is not wanted is not asked for.
func TestList_thatEndsEarlyAsksForNoMore(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		asked := 0
		c := b.listing(t, &asked, nil, driver.Page{Names: []string{"app%3A:a/1", "app%3A:a/2"}}, driver.Page{Names: []string{"app%3A:a/3"}})
		for name, err := range c.List(t.Context(), "a/") {
			require.NoError(t, err)
			if name == "a/2" {
				break
			}
		}
		assert.Equal(t, 1, asked)
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

func TestList_endsWithAnError(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		asked := 0
		c := b.listing(t, &asked, errRefused, driver.Page{Names: []string{"app%3A:a/1"}})
		got, err := names(t.Context(), c, "a/")
		require.ErrorIs(t, err, errRefused)
		var e *locker.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, "list", e.Op)
		assert.Equal(t, []string{"a/1"}, got)

		_, err = names(t.Context(), c, "\xff")
		require.ErrorContains(t, err, "not UTF-8")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errShutdown)
		_, err = names(ctx, c, "a/")
		interruptedBy(ctx, t, err)
		require.NoError(t, c.Close())
		_, err = names(t.Context(), c, "a/")
		require.ErrorIs(t, err, locker.ErrClosed)
		assert.Equal(t, 2, asked)
		_, err = names(t.Context(), b.client(t), "a/")
		require.ErrorIs(t, err, locker.ErrUnsupported)
	})
}

// A page that is not answered ends with its context, after half a TTL, or with the Client.
func TestList_ofASilentBackend(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := clientOf(t, &operable{fakeDriver: &fakeDriver{b: b}, list: func(string) driver.Pager {
			return func(ctx context.Context) (driver.Page, error) { <-ctx.Done(); return driver.Page{}, ctx.Err() }
		}})
		ctx := ending(t, time.Second)
		assert.Equal(t, time.Second, took(func() {
			_, err := names(ctx, c, "")
			interruptedBy(ctx, t, err)
		}))
		assert.Equal(t, ttl/2, took(func() {
			_, err := names(t.Context(), c, "")
			noErrorIs(t, err, context.DeadlineExceeded, locker.ErrClosed)
		}))
		looking := inBackground(func() error { _, err := names(t.Context(), c, ""); return err })
		synctest.Wait()
		closing := inBackground(c.Close)
		require.ErrorIs(t, <-looking, locker.ErrClosed)
		require.NoError(t, <-closing)
	})
}

// forcing makes a Client over a driver that ends holds so.
func (b *backend) forcing(t *testing.T, force func(context.Context, string, locker.State) error, opts ...locker.Option) *locker.Client {
	t.Helper()
	return clientOf(t, &operable{fakeDriver: &fakeDriver{b: b}, force: force}, opts...)
}

func TestForceRelease_showsTheDriverTheHold(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		var shown []locker.State
		c := b.forcing(t, func(_ context.Context, name string, s locker.State) error {
			assert.Equal(t, "app%3A:x", name)
			shown = append(shown, s)
			return nil
		}, locker.WithPrefix("app:"), locker.WithTokenBase(100))
		require.NoError(t, c.ForceRelease(t.Context(), "x", locker.State{Held: true, Token: 107}))
		require.NoError(t, c.ForceRelease(t.Context(), "x", locker.State{Held: true, Holder: locker.Participant{ID: "a"}}))
		assert.Equal(t, []locker.State{{Held: true, Token: 7}, {Held: true, Holder: locker.Participant{ID: "a"}}}, shown, "without the token base")
		for _, is := range []error{locker.ErrHeld, locker.ErrNotHeld, errRefused} {
			c := b.forcing(t, func(context.Context, string, locker.State) error { return is })
			err := c.ForceRelease(t.Context(), "x", locker.State{Held: true, Token: 7})
			require.ErrorIs(t, err, is)
			var e *locker.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, "forcerelease", e.Op)
			assert.Equal(t, "x", e.Name)
		}
	})
}

func TestForceRelease_asksNobody(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.forcing(t, func(context.Context, string, locker.State) error {
			t.Error("the Driver was asked")
			return nil
		}, locker.WithTokenBase(100))
		held := locker.State{Held: true, Token: 107}
		require.ErrorContains(t, c.ForceRelease(t.Context(), "", held), "name is empty")
		require.ErrorIs(t, c.ForceRelease(t.Context(), "x", locker.State{Token: 107}), locker.ErrNotHeld)
		require.ErrorContains(t, c.ForceRelease(t.Context(), "x", locker.State{Held: true}), "pass what Inspect")
		require.ErrorContains(t, c.ForceRelease(t.Context(), "x", locker.State{Held: true, Token: 100}), "same token base")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errShutdown)
		interruptedBy(ctx, t, c.ForceRelease(ctx, "x", held))
		require.NoError(t, c.Close())
		require.ErrorIs(t, c.ForceRelease(t.Context(), "x", held), locker.ErrClosed)
		require.ErrorIs(t, b.client(t).ForceRelease(t.Context(), "x", held), locker.ErrUnsupported)
	})
}

// Who holds the lock is in the error of a TryLock, and of a Lock whose context ends while another holds it.
func TestHeldError_isInTheErrorOfWhoDoesNotGetTheLock(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		said := &locker.HeldError{Holder: locker.Participant{ID: "7", Metadata: "host 7"}}
		c := clientOf(t, &scripted{
			fakeDriver: &fakeDriver{b: b},
			acquire:    func(context.Context, driver.Request) (driver.Lease, error) { return nil, said },
			queue: func(ctx context.Context, _ driver.Request, answered func(error)) (driver.Lease, error) {
				answered(said)
				<-ctx.Done()
				return nil, ctx.Err()
			},
		})
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

// Metadata may be anything: a terminal gets none of it raw, nor all of it.
func TestHeldError_showsMetadataQuotedAndShort(t *testing.T) {
	text := (&locker.HeldError{Holder: locker.Participant{Metadata: "\x1b[2J" + strings.Repeat("a", 1000)}}).Error()
	assert.Equal(t, `the lock is held by another owner, "\x1b[2J`+strings.Repeat("a", 76)+`"…`, text)
	assert.Equal(t, locker.ErrHeld.Error(), (&locker.HeldError{Holder: locker.Participant{ID: "7"}}).Error())
}

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
