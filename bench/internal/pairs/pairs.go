// Package pairs times Lock and Unlock with nobody else there.
package pairs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/stats"
)

// Timing sums up some pairs.
type Timing struct {
	Samples     int     `json:"samples"`
	PairP50Us   float64 `json:"pairP50Us"`
	PairP90Us   float64 `json:"pairP90Us"`
	PairMaxUs   float64 `json:"pairMaxUs"`
	LockP50Us   float64 `json:"lockP50Us"`
	LockP90Us   float64 `json:"lockP90Us"`
	UnlockP50Us float64 `json:"unlockP50Us"`
	UnlockP90Us float64 `json:"unlockP90Us"`
}

// Samples are of Lock, of Unlock, and of both together.
type Samples struct{ locks, unlocks, pairs []time.Duration }

// Add adds one of each.
func (s *Samples) Add(lock, unlock time.Duration) {
	s.locks, s.unlocks, s.pairs = append(s.locks, lock), append(s.unlocks, unlock), append(s.pairs, lock+unlock)
}

// Timing sums them up.
func (s *Samples) Timing() Timing {
	for _, all := range [][]time.Duration{s.locks, s.unlocks, s.pairs} {
		slices.Sort(all)
	}
	us := func(sorted []time.Duration, p float64) float64 {
		return stats.Microseconds(stats.Percentile(sorted, p))
	}
	return Timing{
		Samples:   len(s.pairs),
		PairP50Us: us(s.pairs, 50), PairP90Us: us(s.pairs, 90), PairMaxUs: us(s.pairs, 100),
		LockP50Us: us(s.locks, 50), LockP90Us: us(s.locks, 90),
		UnlockP50Us: us(s.unlocks, 50), UnlockP90Us: us(s.unlocks, 90),
	}
}

// Once locks and unlocks once.
func Once(ctx context.Context, lockIt contend.LockFunc) (lock, unlock time.Duration, err error) {
	start := time.Now()
	unlockIt, err := lockIt(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("lock: %w", err)
	}
	locked := time.Now()
	if err := unlockIt(ctx); err != nil {
		return 0, 0, fmt.Errorf("unlock: %w", err)
	}
	return locked.Sub(start), time.Since(locked), nil
}
