package redigo_test

import (
	"context"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/interrupt"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/redigo"
)

// dials has a pool connect with these options, and select a database first.
func dials(addr string, opts ...redis.DialOption) func(*redis.Pool) {
	opts = append(opts, redis.DialDatabase(1), redis.DialReadTimeout(time.Minute))
	return func(p *redis.Pool) {
		p.DialContext = func(ctx context.Context) (redis.Conn, error) { return redis.DialContext(ctx, "tcp", addr, opts...) }
	}
}

func TestInterruptible(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*redis.Pool){
		"":                func(*redis.Pool) {},
		"pool that waits": func(p *redis.Pool) { p.MaxActive, p.Wait = 3, true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			harness.RedisInterruptible(t, func(t testing.TB, addr string, dial interrupt.Dialer, opts ...locker.Option) *locker.Client {
				connect, option := redigo.Interruptible(dial)
				return kind{drivers: []redigo.DriverOption{option}}.client(t, newPool(t, "", dials(addr, connect), change), opts...)
			})
		})
	}
}

// The option for the connections does nothing, or is not there.
func TestInterruptible_nothingIsLost(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]bool{"TLS of redigo": false, "other connections": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testserver.Redis(t, testserver.RedisTLS())
			connect, option := redigo.Interruptible(nil)
			if other {
				connect = redis.DialKeepAlive(time.Minute)
			}
			p := newPool(t, "", dials(s.Addr(), connect, redis.DialUseTLS(true), redis.DialTLSConfig(s.TLSConfig())))
			c := kind{drivers: []redigo.DriverOption{option}}.client(t, p, locker.WithTTL(4*time.Minute))
			if !other {
				s.Stop()
				wantEndsWithCtx(t, c) // during the handshake
				s.Continue()
			}
			m := c.Mutex("x")
			require.NoError(t, m.Lock(t.Context()))
			require.NoError(t, m.Unlock(t.Context()))
			s.Stop()
			wantEndsWithCtx(t, c)
			s.Continue()
			require.NoError(t, m.Lock(t.Context()))
		})
	}
}
