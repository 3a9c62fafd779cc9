package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/go-locker/locker"
)

// ground is a prefix of our own at a deployment.
type ground struct {
	deployment deployment
	prefix     string

	mu    sync.Mutex
	names map[string]bool // that were locked
}

// newGround has the prefix, if that is not empty; else one that begins with the URL's, for the sake of access rights, and that
// nobody else has.
func newGround(url, prefix, purpose string) *ground {
	d := parse(url)
	own := fmt.Sprintf("%s-%s-%08x", cmp.Or(d.prefix, "locker"), purpose, rand.Uint32())
	return &ground{deployment: d, prefix: cmp.Or(prefix, own), names: map[string]bool{}}
}

// url is that of the deployment, for locks on this ground.
func (g *ground) url() string { return g.deployment.url(g.deployment.hosts) }

// open makes a Client for it.
func (g *ground) open(ctx context.Context, opts ...locker.Option) (*locker.Client, error) {
	return open(ctx, g.url(), append(opts, locker.WithPrefix(g.prefix))...)
}

// name remembers a name, for cleanUp.
func (g *ground) name(name string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.names[name] = true
	return name
}
