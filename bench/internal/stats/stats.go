// Package stats sums up what was measured.
package stats

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Percentile returns the smallest of sorted that p percent of them do not exceed (the nearest rank),
// and 0 of none.
func Percentile[T cmp.Ordered](sorted []T, p float64) T {
	if len(sorted) == 0 {
		var zero T
		return zero
	}
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Jain is the fairness index of R. Jain, D. Chiu and W. Hawe, "A Quantitative Measure of Fairness and
// Discrimination" (DEC-TR-301, 1984): 1 if all shares are equal, 1/n if one of n has everything.
func Jain[T int | float64](shares []T) float64 {
	var sum, squares float64
	for _, share := range shares {
		sum += float64(share)
		squares += float64(share) * float64(share)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// Spread is what several rounds came to.
type Spread struct{ Median, Low, High float64 }

// SpreadOf sums up one value a round. The median of an even number is the mean of the middle two.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Spread{(sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[0], sorted[n-1]}
}

// Across is the spread of one value of each.
func Across[T any](group []T, value func(*T) float64) Spread {
	values := make([]float64, len(group))
	for i := range group {
		values[i] = value(&group[i])
	}
	return SpreadOf(values)
}

// Sum is the sum of one value of each.
func Sum[T any, N int | int64](group []T, value func(*T) N) (sum N) {
	for i := range group {
		sum += value(&group[i])
	}
	return sum
}

// Text is "median (low–high)", or one figure if they are written alike.
func (s Spread) Text(decimals int) string {
	median, low, high := Figure(s.Median, decimals), Figure(s.Low, decimals), Figure(s.High, decimals)
	if low == high {
		return median
	}
	return fmt.Sprintf("%s (%s–%s)", median, low, high)
}

// Figure writes f with so many decimals.
func Figure(f float64, decimals int) string { return fmt.Sprintf("%.*f", decimals, f) }

// Grouped puts together what has the same key, in the order in which keys first appear.
func Grouped[T any](all []T, key func(T) string) [][]T {
	var groups [][]T
	index := make(map[string]int)
	for _, one := range all {
		k := key(one)
		i, known := index[k]
		if !known {
			i = len(groups)
			index[k] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], one)
	}
	return groups
}

// Microseconds is d with its fraction.
func Microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// Milliseconds is d with its fraction.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Ratios divides the value of each in the group by that of the baseline in the same round, if that is among
// all that were measured.
func Ratios[T any](
	group, all []T, baseline string, key func(*T) (library string, round int), value func(*T) float64,
) string {
	base := make(map[int]float64)
	for i := range all {
		if library, round := key(&all[i]); library == baseline {
			base[round] = value(&all[i])
		}
	}
	var quotients []float64
	for i := range group {
		if _, round := key(&group[i]); base[round] > 0 {
			quotients = append(quotients, value(&group[i])/base[round])
		}
	}
	if len(quotients) == 0 {
		return "–"
	}
	return SpreadOf(quotients).Text(2)
}
