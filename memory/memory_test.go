package memory_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	_ "github.com/go-locker/locker/memory"
)

func TestSmoke(t *testing.T) {
	ctx := context.Background()
	c, err := locker.Open(ctx, "mem://smoke?ttl=100ms")
	require.NoError(t, err)
	a, b := c.Mutex("x"), c.Mutex("x", locker.WithoutRenewal())
	require.NoError(t, a.Lock(ctx))
	t.Log(a.TryLock(ctx), time.Until(a.Deadline()))
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	err = b.Lock(short)
	t.Log(err)
	require.ErrorIs(t, err, locker.ErrHeld)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	done := make(chan error)
	go func() { done <- b.Lock(ctx) }()
	time.Sleep(10 * time.Millisecond)
	require.NoError(t, a.Unlock(ctx))
	require.NoError(t, <-done)
	<-b.Lost()
	t.Log(b.Lock(ctx), b.Extend(ctx), b.Unlock(ctx), b.Unlock(ctx))
	t.Log(c.Close())
}

func BenchmarkPair(b *testing.B) {
	ctx := context.Background()
	c, _ := locker.Open(ctx, "mem://bench")
	m := c.Mutex("x")
	b.ReportAllocs()
	for b.Loop() {
		_ = m.Lock(ctx)
		_ = m.Unlock(ctx)
	}
}
