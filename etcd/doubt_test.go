package etcd_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLostReply_ofAnUnlock_isASuccess(t *testing.T) {
	t.Parallel()
	sessions(t).UnlockUnanswered(t)
}

// The answer to a renewal is late. What is locked after it, on the same session, lasts for a TTL
// from when the renewal was sent. After a second the renewal is sent again, which a busy machine
// may be slow enough for.
func TestDeadline_countsFromWhenTheRenewalWasSent(t *testing.T) {
	t.Parallel()
	const ttl, late = 30 * time.Second, 600 * time.Millisecond // more than the allowance for clocks
	f := newFaulty(t, ttl)
	m, next := f.client.Mutex("x"), f.client.Mutex("y")
	require.NoError(t, m.Lock(t.Context()))
	eventually(t, "it counts from before the answer", func() bool {
		f.proxy.HoldReplies(true)
		extended := async(func() error { return m.Extend(t.Context()) })
		eventually(t, "the renewal is answered", func() bool { _, replies := f.proxy.Held(); return replies > 0 })
		sent := time.Now() // or earlier
		time.Sleep(late)
		f.proxy.ReleaseReplies()
		require.NoError(t, await(t, extended))
		require.NoError(t, next.Lock(t.Context()))
		deadline := next.Deadline()
		require.NoError(t, next.Unlock(t.Context()))
		return deadline.Before(sent.Add(ttl))
	})
	require.NoError(t, m.Unlock(t.Context()))
}
