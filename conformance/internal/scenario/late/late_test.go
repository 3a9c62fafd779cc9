package late

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-locker/locker/conformance/internal/harness"
	"github.com/go-locker/locker/conformance/internal/party"
)

func TestEachLast_tellsNoStoryTwice(t *testing.T) {
	for sent, want := range map[int][]int{0: {0}, 1: {0}, 2: {0, 1}, 4: {0, 1, 2, 3}, 9: {0, 1, 2, 3}} {
		var mu sync.Mutex
		var told []int
		eachLast(party.NewEnv(t, harness.Harness{TTL: time.Second}), sent, func(_ *party.Env, last int) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, last)
		})
		slices.Sort(told)
		assert.Equal(t, want, told, "%d requests", sent)
	}
}
