//go:build race

package conformance

// slowdown is how many times as long a scenario takes as it should, under the race detector.
const slowdown = 3
