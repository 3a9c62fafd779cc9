package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"sync"

	"github.com/go-locker/locker"
)

// ground makes names on a deployment that nobody else uses.
type ground struct {
	deployment deployment
	prefix     string
	table      string // of our own in PostgreSQL or MySQL, or empty
	mark       string // the end of our names, or empty if the prefix is ours alone

	mu    sync.Mutex
	names map[string]bool // that were locked
}

// newGround uses the prefix, if it is not empty; otherwise a new one that begins with the URL's, because of access rights.
func newGround(url, prefix, purpose string) *ground {
	g := &ground{deployment: parse(url), prefix: prefix, names: map[string]bool{}}
	own := fmt.Sprintf("-%s-%08x", purpose, rand.Uint32())
	if prefix == "" {
		g.prefix = cmp.Or(g.deployment.prefix, "locker") + own
	} else {
		g.mark = own
	}
	return g
}

// url returns the deployment's URL, for locks on this ground.
func (g *ground) url() string { return g.deployment.url(g.deployment.Hosts) }

// open makes a Client for it.
func (g *ground) open(ctx context.Context) (*locker.Client, error) {
	return open(ctx, g.url(), locker.WithPrefix(g.prefix))
}

// random matches the random part that nearly all names of the conformance suite have.
var random = regexp.MustCompile(`(?i)conformance-[0-9a-f]{16}`)

// name returns a name that nobody else uses, and remembers it for cleanUp. It does not make an empty name valid.
func (g *ground) name(name string) string {
	if name != "" && !random.MatchString(name) {
		name += g.mark
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.names[name] = true
	return name
}
