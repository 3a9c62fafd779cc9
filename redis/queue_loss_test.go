package redis_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// What happens to the server while many wait. Who holds may lose by it, who waits must not.
func TestQueue_manyWaitersOutlive(t *testing.T) {
	t.Parallel()
	many := 20
	if testwait.Thorough() {
		many = 100
	}
	for name, strike := range map[string]func(t *testing.T, s *testserver.RedisServer, r *queueTest){
		"FLUSHALL": func(t *testing.T, _ *testserver.RedisServer, r *queueTest) { do(t, r, "FLUSHALL") },
		"CLIENT KILL TYPE pubsub": func(t *testing.T, _ *testserver.RedisServer, r *queueTest) {
			do(t, r, "CLIENT", "KILL", "TYPE", "pubsub")
		},
		"a restart without data": func(_ *testing.T, s *testserver.RedisServer, _ *queueTest) { s.Restart() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testserver.Redis(t)
			r := newQueueTest(t, connect(t, s.Addr()))
			unlocker := newClient(t, s.Addr()).Mutex(r.name)
			require.NoError(t, unlocker.Lock(t.Context()))
			all := r.joinAll(t.Context(), many, newClients(t, s.Addr(), 4)...)
			r.subscribed(4)
			strike(t, s, r)
			_ = unlocker.Unlock(t.Context())
			wantServed(t, all)
			r.wantEmpty()
		})
	}
}

func do(t *testing.T, r *queueTest, args ...any) {
	t.Helper()
	require.NoError(t, r.direct.Do(t.Context(), args...).Err())
}
