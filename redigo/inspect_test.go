package redigo_test

import (
	"testing"
	"time"

	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestInspect(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	harness.Inspect(t, harness.Inspection{
		URL: "redigo://" + s.Addr() + "?pool_size=3", TTL: time.Second,
		Left: true, Since: true, LastToken: true, TokenWhenWaited: true, Queue: true, IDs: true,
		TellsHolder: true, TellsMetadata: true,
		Listening: harness.RedisListening(s),
		Stop:      func() func() { s.Stop(); return s.Continue },
		Kill:      s.Kill,
	})
}
