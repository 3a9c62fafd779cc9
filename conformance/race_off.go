//go:build !race

package conformance

// slowdown is how many times as long a scenario takes as it should.
const slowdown = 1
