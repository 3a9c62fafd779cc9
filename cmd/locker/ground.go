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

// ground is names of our own at a deployment.
type ground struct {
	deployment deployment
	prefix     string
	mark       string // what our names end in, or empty if the prefix is ours alone

	mu    sync.Mutex
	names map[string]bool // that were locked
}

// newGround has the prefix, if that is not empty; else one that begins with the URL's, for the sake of access rights, and that
// nobody else has.
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

// url is that of the deployment, for locks on this ground.
func (g *ground) url() string { return g.deployment.url(g.deployment.hosts) }

// open makes a Client for it.
func (g *ground) open(ctx context.Context, opts ...locker.Option) (*locker.Client, error) {
	return open(ctx, g.url(), append(opts, locker.WithPrefix(g.prefix))...)
}

// random is what the names of the conformance suite have in them that nobody else uses, but for a few.
var random = regexp.MustCompile(`(?i)conformance-[0-9a-f]{16}`)

// name is one that nobody else uses, made of name where that is needed, and remembered for cleanUp. An empty one is not
// made valid.
func (g *ground) name(name string) string {
	if name != "" && !random.MatchString(name) {
		name += g.mark
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.names[name] = true
	return name
}
