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

// The answer to a renewal is late: the deadline counts from when it was sent. After a second it is sent again,
// which a busy machine may be slow enough for.
func TestDeadline_countsFromWhenTheRenewalWasSent(t *testing.T) {
	t.Parallel()
	const ttl, late = 30 * time.Second, 600 * time.Millisecond // more than the allowance for clocks
	f := newFaulty(t, ttl)
	m := f.client.Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	eventually(t, "it counts from before the answer", func() bool {
		f.proxy.HoldReplies(true)
		extended := async(func() error { return m.Extend(t.Context()) })
		eventually(t, "the renewal is answered", func() bool { _, replies := f.proxy.Held(); return replies > 0 })
		sent := time.Now() // or earlier
		time.Sleep(late)
		f.proxy.ReleaseReplies()
		require.NoError(t, await(t, extended))
		return m.Deadline().Before(sent.Add(ttl))
	})
	require.NoError(t, m.Unlock(t.Context()))
}
