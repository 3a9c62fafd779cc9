package conformance

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEachLast_tellsNoStoryTwice(t *testing.T) {
	for sent, want := range map[int][]int{0: {0}, 1: {0}, 2: {0, 1}, 4: {0, 1, 2, 3}, 9: {0, 1, 2, 3}} {
		var mu sync.Mutex
		var told []int
		newEnv(t, Harness{TTL: time.Second}).eachLast(sent, func(_ *env, last int) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, last)
		})
		slices.Sort(told)
		assert.Equal(t, want, told, "%d requests", sent)
	}
}

func TestWire_keepsBackTheLast(t *testing.T) {
	w, conn := echoes(t)
	require.True(t, comesBack(conn, soon))
	assert.Equal(t, 1, w.requests())
	w.holdLast(1, 3)
	require.True(t, comesBack(conn, soon))
	require.True(t, comesBack(conn, soon))
	assert.False(t, comesBack(conn, moment))
	w.passNew()
	assert.True(t, comesBack(dialed(t, conn.RemoteAddr().String()), soon))
	assert.Equal(t, 5, w.requests())
	w.release()
	assert.True(t, arrives(conn, soon))
}

func TestWire_abandonsWhatIsKeptBack(t *testing.T) {
	w, conn := echoes(t)
	w.holdRequests()
	require.False(t, comesBack(conn, moment))
	w.seal()
	w.passNew()
	w.abandon()
	assert.False(t, arrives(conn, soon), "its end is closed")
	assert.True(t, w.held(), "what was sent is yet to arrive")
	assert.True(t, comesBack(dialed(t, conn.RemoteAddr().String()), soon))
}
