package simulation

import (
	"math/bits"
	"time"
)

// dice are random numbers that depend on the seed, on the virtual time and on what is asked for,
// and on nothing else. Goroutines that run at the same instant, in whatever order, do not disturb
// each other's.
type dice struct {
	seed  uint64
	began time.Time
}

func (d dice) roll(what string, id uint64) uint64 {
	h := d.seed*0x9e3779b97f4a7c15 + 0x632be59bd9b4e019
	mix := func(v uint64) {
		hi, lo := bits.Mul64(h^v, 0xd6e8feb86659fd93)
		h = hi ^ lo ^ bits.RotateLeft64(h, 23)
	}
	mix(uint64(time.Since(d.began)))
	for _, c := range []byte(what) {
		mix(uint64(c) + 1)
	}
	mix(id + 0x1000)
	mix(d.seed ^ 0xa0761d6478bd642f)
	return h
}

// below is a number below n.
func (d dice) below(n int, what string, id uint64) int {
	return int(d.roll(what, id) >> 1 % uint64(n))
}

// upTo is a time below n, by the nanosecond, so that hardly two things happen at one instant.
func (d dice) upTo(n time.Duration, what string, id uint64) time.Duration {
	return time.Duration(d.below(max(int(n), 1), what, id))
}

// chance is true so often.
func (d dice) chance(share float64, what string, id uint64) bool {
	return float64(d.roll(what, id)>>11)/(1<<53) < share
}
