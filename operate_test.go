package locker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
)

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
