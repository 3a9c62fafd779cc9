package main

import (
	"cmp"
	"math"
	"slices"
)

// percentile returns the smallest of sorted that p percent of them do not exceed (the nearest rank),
// and 0 of none.
func percentile[T cmp.Ordered](sorted []T, p float64) T {
	if len(sorted) == 0 {
		var zero T
		return zero
	}
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// jain is the fairness index of R. Jain, D. Chiu and W. Hawe, "A Quantitative Measure of Fairness and
// Discrimination" (DEC-TR-301, 1984): 1 if all shares are equal, 1/n if one of n has everything.
func jain[T int | float64](shares []T) float64 {
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

// spread is what several rounds came to.
type spread struct{ median, low, high float64 }

// spreadOf sums up one value a round. The median of an even number is the mean of the middle two.
func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return spread{(sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[0], sorted[n-1]}
}
