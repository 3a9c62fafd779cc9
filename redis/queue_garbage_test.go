package redis_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// What answers is no Redis, or one that has lost its mind, after the waiter was told to wait.
func TestQueue_garbageOnTheSubscriptionIsAnOutageOfTheSubscription(t *testing.T) {
	t.Parallel()
	all := []string{"*3\r\n:1\r\n:2\r\n+three\r\n", "-ERR what\r\n", "HTTP/1.1 400\r\n\r\n"}
	if testwait.Thorough() {
		all = append(all, "*0\r\n", "*1\r\n$9\r\nsubscribe\r\n", "*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n$1\r\nx\r\n",
			"*3\r\n$7\r\nmessage\r\n:1\r\n:2\r\n", "*2\r\n$4\r\npong\r\n:1\r\n", ":1\r\n", "$-1\r\n", "*-1\r\n")
	}
	for _, garbage := range all {
		t.Run(fmt.Sprintf("%.12q", garbage), func(t *testing.T) {
			t.Parallel()
			s := testserver.Redis(t)
			r := newQueueTest(t, connect(t, s.Addr()))
			unlock := r.hold(newClient(t, s.Addr()))
			c := newClientThatSubscribesAt(t, s.Addr(), otherServer(t, garbage))
			done := async(func() error { return r.serve(t.Context(), c) })
			eventually(t, "it waits", func() bool { return r.length() == 1 })
			time.Sleep(50 * tick)
			unlock()
			require.NoError(t, await(t, done))
			r.wantEmpty()
		})
	}
}
