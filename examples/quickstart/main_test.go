package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
