//go:build !unix

package adapter

// nonblock is nothing where a pipe has no name among files.
const nonblock = 0
