package driver_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/memory"
)

func TestOpen(t *testing.T) {
	u := &driver.URL{Scheme: "mem", Hosts: []string{"opendriver"}, Query: url.Values{"left": {"1"}}}
	d, err := driver.Open(t.Context(), u)
	require.NoError(t, err)
	assert.IsType(t, memory.NewDriver(), d)
	assert.Equal(t, url.Values{"left": {"1"}}, u.Query, "for the caller to refuse")
	_, err = driver.Open(t.Context(), &driver.URL{Scheme: "nosuch"})
	require.ErrorContains(t, err, `unknown scheme "nosuch"`)

	failed := errors.New("failed")
	for want, returned := range map[string]error{"failed": failed, "no Driver": nil} {
		s := scheme(func(context.Context, *driver.URL) (driver.Driver, error) { return nil, returned })
		_, err = driver.Open(t.Context(), &driver.URL{Scheme: s})
		require.ErrorContains(t, err, want)
	}
}

func TestRegister_panics(t *testing.T) {
	open := func(context.Context, *driver.URL) (driver.Driver, error) { return memory.NewDriver(), nil }
	s := scheme(open)
	for want, f := range map[string]func(){
		"registered already": func() { driver.Register(s, open) },
		"not empty":          func() { driver.Register("", open) },
		"lower case":         func() { driver.Register("Redis", open) },
		"nil OpenFunc":       func() { driver.Register(s+"x", nil) },
	} {
		func() {
			defer func() { assert.Contains(t, fmt.Sprint(recover()), want) }()
			f()
		}()
	}
}

func TestError_showsTheBeginningOfALongName(t *testing.T) {
	for _, character := range []string{"n", "é", "長"} {
		text := (&driver.Error{Op: "lock", Name: strings.Repeat(character, 2048), Err: errRefused}).Error()
		assert.Equal(t, `locker: lock "`+strings.Repeat(character, 80)+`"…: refused`, text)
		assert.True(t, utf8.ValidString(text))
	}
	assert.EqualError(t, &driver.Error{Op: "lock", Name: "長", Err: errRefused}, `locker: lock "長": refused`)
}

// Metadata may be anything: a terminal gets none of it raw, nor all of it.
func TestHeldError_showsMetadataQuotedAndShort(t *testing.T) {
	held := &driver.HeldError{Holder: driver.Participant{Metadata: "\x1b[2J" + strings.Repeat("a", 1000)}}
	text := `the lock is held by another owner, "\x1b[2J` + strings.Repeat("a", 76) + `"…`
	require.EqualError(t, held, text)
	held.Holder = driver.Participant{ID: "7"}
	assert.EqualError(t, held, driver.ErrHeld.Error())
}

var errRefused = errors.New("refused")

func ending(t *testing.T, after time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), after)
	t.Cleanup(cancel)
	return ctx
}

func TestDetach_returnsWhatTheCallDoes(t *testing.T) {
	require.NoError(t, driver.Detach(t.Context(), time.Minute, func(context.Context) error { return nil }))
	require.ErrorIs(t, driver.Detach(t.Context(), time.Minute, func(context.Context) error { return errRefused }), errRefused)
}

// The end of ctx is not seen by the client library, which might take it for a failure and close its
// connection.
func TestDetach_theCallHasAContextOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		began := time.Now()
		ctx, seen := context.WithValue(ending(t, time.Second), key{}, "trace"), make(chan context.Context, 1)
		err := driver.Detach(ctx, time.Minute, func(own context.Context) error {
			seen <- own
			<-own.Done()
			return own.Err()
		})
		require.Equal(t, context.DeadlineExceeded, err)
		assert.Equal(t, time.Second, time.Since(began))
		own := <-seen
		require.NoError(t, own.Err())
		assert.Equal(t, "trace", own.Value(key{}))
		<-own.Done()
		assert.Equal(t, time.Minute, time.Since(began))
	})
}
