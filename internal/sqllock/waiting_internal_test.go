package sqllock

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/go-locker/locker/driver"
)

// A waiter that has left stands before nobody, and nothing stays of a name that nobody waits for.
func TestWaiting_wakesTheFirst(t *testing.T) {
	var w waiting
	var woken []int64
	enters := func(ticket int64) *claim {
		wake := func() { woken = append(woken, ticket) }
		c := &claim{Request: driver.Request{Wake: wake}, key: []byte("x"), ticket: ticket}
		w.enter(c)
		return c
	}
	second, first := enters(2), enters(1)
	assert.True(t, w.first(first))
	w.wake(first.key)
	w.leave(first)
	assert.True(t, w.first(second))
	w.leave(second)
	w.leave(second)
	assert.Equal(t, []int64{1, 2}, woken)
	assert.Empty(t, w.of)
	assert.True(t, w.first(enters(3)))
}

func TestRecent_isBounded(t *testing.T) {
	var r Recent[int]
	for i := range 2 * mostRecent {
		key := []byte(strconv.Itoa(i))
		r.Set(key, i)
		r.Set(key, i+1)
		assert.Equal(t, i+1, r.Get(key))
		assert.Len(t, r.of, min(i+1, mostRecent))
	}
}
