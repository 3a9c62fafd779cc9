package sqllock

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

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

func TestSweeper_sweepsOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSweeper(100)
		defer s.Close()
		s.due.Store(int64(time.Since(epoch)))
		sweeps := 0
		for range 100 {
			s.IfDue(func(context.Context) error { sweeps++; time.Sleep(2 * time.Second); return nil })
			time.Sleep(time.Second)
		}
		assert.Equal(t, 2, sweeps)
	})
}
