package memory_test

import (
	"testing"
	"time"

	"github.com/go-locker/locker/internal/test/harness"
)

func TestInspect(t *testing.T) {
	harness.Inspect(t, harness.Inspection{
		URL: "mem://inspect", TTL: 300 * time.Millisecond,
		Left: true, Since: true, TokenWhenWaited: true, Queue: true, IDs: true, TellsHolder: true, TellsMetadata: true,
	})
}

func TestAbandon(t *testing.T) {
	harness.Abandon(t, "mem://abandon?", time.Second)
}
