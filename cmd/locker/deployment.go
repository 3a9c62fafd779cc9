package main

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/adapter"
	"github.com/go-locker/locker/internal/backends"
)

// deployment is a URL in parts, so that other URLs can be made of it: without the user's settings for locks, or through a
// proxy.
type deployment struct {
	driver.URL

	prefix, ttl string // from the query
}

// ownParams are left out: check and bench set them, or, as require, do not need them.
var ownParams = []string{"ttl", "renew", "prefix", "require", "token_base"}

// parse splits a URL that [locker.Open] has accepted.
func parse(rawURL string) deployment {
	u, err := driver.ParseURL(rawURL)
	if err != nil {
		return deployment{}
	}
	d := deployment{URL: *u, prefix: u.Query.Get("prefix"), ttl: u.Query.Get("ttl")}
	return d.only(func(name string) bool { return !slices.Contains(ownParams, name) })
}

// url returns the deployment's URL with these hosts, which are its own or proxies.
func (d deployment) url(hosts []string) string {
	user := ""
	if d.User != nil {
		user = d.User.String() + "@"
	}
	path := strings.NewReplacer("@", "%40").Replace((&url.URL{Path: d.Path}).EscapedPath())
	return strings.TrimSuffix(d.Scheme+"://"+user+strings.Join(hosts, ",")+path+"?"+d.Query.Encode(), "?")
}

// only returns d with the parameters whose names are to stay.
func (d deployment) only(stays func(name string) bool) deployment {
	d.Query = maps.Clone(d.Query)
	maps.DeleteFunc(d.Query, func(name string, _ []string) bool { return !stays(name) })
	return d
}

// with returns d with a parameter.
func (d deployment) with(name, value string) deployment {
	d.Query = maps.Clone(d.Query)
	d.Query.Set(name, value)
	return d
}

// kind returns the scheme without TLS.
func (d deployment) kind() string {
	if b, ok := backends.Of(d.Scheme); ok {
		return b.Schemes[0]
	}
	return d.Scheme
}

// addresses returns the hosts with their ports, or nil if a client finds others by itself, or has to see a certificate for the
// name that it has dialled.
func (d deployment) addresses() []string {
	b, _ := backends.Of(d.Scheme)
	if b.Port == "" || d.secure() || d.Query.Has("socket") || d.Query.Has("master_name") || d.Query.Has("cluster") {
		return nil
	}
	return adapter.Addrs(&d.URL, b.Port)
}

// secure reports whether the servers use TLS, also those of a quorum.
func (d deployment) secure() bool {
	if d.kind() == "postgres" {
		return d.Query.Get("sslmode") == "verify-full" // with another a server may have any name
	}
	return d.Scheme != d.kind() || slices.Contains([]string{"rediss", "redigos"}, d.Query.Get("driver"))
}

// String returns the URL without secrets and parameters.
func (d deployment) String() string {
	return fmt.Sprintf("%s://%s%s", d.Scheme, strings.Join(d.Hosts, ","), d.Path)
}
