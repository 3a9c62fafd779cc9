package harness

import (
	"fmt"
	"sync"
	"testing"
)

// spaces are the prefixes of the tests that run, by name, and how many there were.
var spaces struct {
	sync.Mutex
	of    map[string]string
	count int
}

// Space returns a prefix of locks that no other test of this process has, the same one for each
// call of t. Most tests share one server. A subtest has a prefix of its own.
func Space(t testing.TB) string {
	t.Helper()
	spaces.Lock()
	defer spaces.Unlock()
	if s, ok := spaces.of[t.Name()]; ok {
		return s
	}
	if spaces.of == nil {
		spaces.of = map[string]string{}
	}
	spaces.count++
	s := fmt.Sprint("t", spaces.count)
	spaces.of[t.Name()] = s
	t.Cleanup(func() {
		spaces.Lock()
		defer spaces.Unlock()
		delete(spaces.of, t.Name())
	})
	return s
}
