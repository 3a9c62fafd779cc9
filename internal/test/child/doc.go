// Package child runs part of a test as a process of its own, which the test can stop: a test binary that starts itself
// again.
package child
