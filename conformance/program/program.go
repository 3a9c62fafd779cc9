// Package program puts a lock that is a program of its own, in any language, through the suite of
// package conformance: [Exec] makes its Harness. [Serve] and [ServeLocks] are for programs in Go.
// docs/judge-any-language.md is the specification of what the suite and a program say to each other.
package program

import (
	"io"
	"os/exec"
	"slices"
	"time"

	"github.com/go-locker/locker/conformance/internal/remote"
	"github.com/go-locker/locker/internal/stdio"
)

// AddressEnv is the environment variable that tells a [Program] where its server is.
const AddressEnv = remote.AddressEnv

// Program is a lock under test that is a program of its own, in any language. It reads requests
// from its standard input and answers on its standard output, in lines of JSON.
// docs/evidence/judge-any-language.md is the specification.
type Program struct {
	// Command returns the command of a new process that serves Lockers. The suite adds to its Env.
	// Several goroutines call it at the same time.
	Command func() *exec.Cmd

	// TTL is the Harness's, in whole milliseconds.
	TTL time.Duration

	// Address, optional, is the program's server, "host:port", or several with commas in between.
	// The program finds it in the environment variable LOCKER_ADDRESS. Where the suite wants to
	// disturb the network, that is the address of a proxy.
	Address string

	// Trace, optional, is where the suite writes what was sent and answered, in order of time.
	Trace io.Writer
}

// Claims is what a program says of itself.
type Claims struct {
	Name         string
	Capabilities []string // that the suite knows
	Unknown      []string // that it does not know, and does not ask for
}

func claimsOf(hello stdio.Hello) Claims {
	c := Claims{Name: hello.Name}
	for _, capability := range hello.Capabilities {
		if slices.Contains(stdio.Capabilities, capability) {
			c.Capabilities = append(c.Capabilities, capability)
		} else {
			c.Unknown = append(c.Unknown, capability)
		}
	}
	return c
}
