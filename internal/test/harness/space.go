package harness

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	spaces     sync.Map // the prefixes of the tests that run, by name
	spaceCount atomic.Int64
)

// Space returns a prefix of locks that no other test of this process has, the same one for each
// call of t. Most tests share one server. A subtest has a prefix of its own.
func Space(t testing.TB) string {
	t.Helper()
	s, ran := spaces.LoadOrStore(t.Name(), fmt.Sprint("t", spaceCount.Add(1)))
	if !ran {
		t.Cleanup(func() { spaces.Delete(t.Name()) })
	}
	return s.(string)
}
