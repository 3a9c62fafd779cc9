//go:build !unix

package adapterurl

// nonblock is nothing where a pipe has no name among files.
const nonblock = 0
