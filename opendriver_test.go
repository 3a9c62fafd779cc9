package locker_test

import (
	"context"
	"errors"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/memory"
)

func TestOpenDriver(t *testing.T) {
	u := &locker.URL{Scheme: "mem", Hosts: []string{"opendriver"}, Query: url.Values{"left": {"1"}}}
	d, err := locker.OpenDriver(t.Context(), u)
	require.NoError(t, err)
	assert.IsType(t, &memory.Driver{}, d)
	assert.Equal(t, url.Values{"left": {"1"}}, u.Query, "for the caller to refuse")
	_, err = locker.OpenDriver(t.Context(), &locker.URL{Scheme: "nosuch"})
	require.ErrorContains(t, err, `unknown scheme "nosuch"`)

	failed := errors.New("failed")
	locker.Register("opendriver-fails", func(context.Context, *locker.URL) (locker.Driver, error) { return nil, failed })
	_, err = locker.OpenDriver(t.Context(), &locker.URL{Scheme: "opendriver-fails"})
	require.ErrorIs(t, err, failed)
	locker.Register("opendriver-nil", func(context.Context, *locker.URL) (locker.Driver, error) { return nil, nil })
	_, err = locker.OpenDriver(t.Context(), &locker.URL{Scheme: "opendriver-nil"})
	require.ErrorContains(t, err, "no Driver")
}
