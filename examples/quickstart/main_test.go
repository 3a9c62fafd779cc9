package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
	_ "github.com/go-locker/locker/redis"
)

func TestTell(t *testing.T) {
	t.Parallel()
	url := "mem://" + t.Name() + "?ttl=1h" // the story has a TTL of its own
	var out strings.Builder
	require.NoError(t, story{out: &out, start: time.Now(), ttl: time.Second}.tell(t.Context(), url))
	rest := out.String()
	for _, step := range []string{
		"alice  holds", "bob    tries, and is told that another holds it", "alice  unlocks", "bob    holds it now",
		"bob    gets it once her TTL is over", "REFUSED", "and is told: locker: unlock \"orders/42\": the lock was lost",
		"last written by bob",
	} {
		_, after, found := strings.Cut(rest, step)
		require.True(t, found, "want %q, in this order, in:\n%s", step, out.String())
		rest = after
	}
}

func TestKeep_excludesASecondProcess(t *testing.T) {
	t.Parallel()
	url := testserver.Redis(t).URL()
	var first, second strings.Builder
	done := make(chan error, 1)
	go func() {
		done <- story{out: &first, start: time.Now()}.keep(context.Background(), url, 500*time.Millisecond)
	}()
	start := time.Now()
	require.NoError(t, story{out: &second, start: start}.keep(t.Context(), url, 500*time.Millisecond))
	require.NoError(t, <-done)
	assert.GreaterOrEqual(t, time.Since(start), time.Second, "two holds of 500ms cannot overlap:\n%s\n%s", &first, &second)
}
