package driver_test

import (
	"context"
	"errors"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/memory"
)

func TestOpen(t *testing.T) {
	u := &driver.URL{Scheme: "mem", Hosts: []string{"opendriver"}, Query: url.Values{"left": {"1"}}}
	d, err := driver.Open(t.Context(), u)
	require.NoError(t, err)
	assert.IsType(t, &memory.Driver{}, d)
	assert.Equal(t, url.Values{"left": {"1"}}, u.Query, "for the caller to refuse")
	_, err = driver.Open(t.Context(), &driver.URL{Scheme: "nosuch"})
	require.ErrorContains(t, err, `unknown scheme "nosuch"`)

	failed := errors.New("failed")
	_, err = driver.Open(t.Context(), &driver.URL{Scheme: scheme(func(context.Context, *driver.URL) (driver.Driver, error) { return nil, failed })})
	require.ErrorIs(t, err, failed)
	_, err = driver.Open(t.Context(), &driver.URL{Scheme: scheme(func(context.Context, *driver.URL) (driver.Driver, error) { return nil, nil })})
	require.ErrorContains(t, err, "no Driver")
}
