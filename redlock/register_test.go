package redlock

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/quorum"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/redis"
)

// The simulated nodes do what a Redis server does with the scripts: both get the same random operations.
func TestRegister_isWhatRedisDoes(t *testing.T) {
	s := testserver.Redis(t)
	rdb := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	defer func() { _ = rdb.Close() }()
	d, err := redis.NewDriver(rdb)
	require.NoError(t, err)
	defer func() { _ = d.Close() }()
	soon := uint64(time.Now().Add(20 * time.Second).UnixMicro())
	for seed := range uint64(40) {
		require.NoError(t, rdb.FlushAll(t.Context()).Err())
		c := comparison{t: t, seed: seed, rdb: rdb, driver: d, r: rand.New(rand.NewPCG(seed, 0)), soon: soon}
		for range 100 {
			c.step()
		}
	}
}

// comparison has a server and a register side by side.
type comparison struct {
	t      *testing.T
	seed   uint64
	rdb    *goredis.Client
	driver *redis.Driver
	r      *rand.Rand
	soon   uint64 // tokens begin here: by a clock that is not far ahead of the server's
	reg    register
	leases []*pair
	did    []string
}

type pair struct {
	real     quorum.Candidate
	owner    uint64
	token    uint64
	released bool
	lost     bool
}

func (c *comparison) step() {
	if len(c.leases) == 0 || c.r.IntN(4) == 0 {
		c.take()
		return
	}
	p := c.leases[max(0, len(c.leases)-1-c.r.IntN(4))]
	ctx := c.t.Context()
	switch c.r.IntN(9) {
	case 0, 1, 2:
		token := c.soon + uint64(c.r.IntN(12))
		ok := c.reg.raise(0, p.owner, token)
		if ok {
			p.token = token
		}
		c.same("raise", ok, p.real.Raise(ctx, token))
	case 3, 4:
		c.same("extend", c.reg.extend(0, p.owner, 1), p.real.Extend(ctx, time.Minute))
	case 5, 6, 7:
		ok := !p.lost && c.reg.release(0, p.owner, p.token, p.released)
		p.released, p.lost = true, !ok
		c.same("release", ok, p.real.Release(ctx))
	case 8:
		c.did = append(c.did, "expire")
		c.reg.until = 0
		// The lock expires a minute before the key does.
		require.NoError(c.t, c.rdb.PExpire(ctx, "{x}", time.Minute).Err())
		if c.r.IntN(4) == 0 {
			c.did = append(c.did, "forget")
			c.reg.forget()
			require.NoError(c.t, c.rdb.FlushAll(ctx).Err())
		}
	}
}

func (c *comparison) take() {
	p := &pair{owner: uint64(len(c.leases) + 1)}
	token := c.soon + uint64(c.r.IntN(12))
	ok, accepted := c.reg.take(0, p.owner, 1, token)
	var err error
	p.real, err = claims.Propose(c.t.Context(), c.driver, driver.Request{Name: "x", TTL: time.Minute}, token)
	c.same("take", ok, err)
	if ok {
		require.Equal(c.t, accepted, p.real.Token(), "seed %d, after %v", c.seed, c.did)
		p.token = accepted
		c.leases = append(c.leases, p)
	}
}

func (c *comparison) same(op string, ok bool, err error) {
	c.t.Helper()
	c.did = append(c.did, op)
	if err != nil && !errors.Is(err, locker.ErrHeld) {
		require.ErrorIs(c.t, err, locker.ErrLost)
	}
	require.Equal(c.t, ok, err == nil, "seed %d, after %v: the register says %v, Redis %v", c.seed, c.did, ok, err)
}
