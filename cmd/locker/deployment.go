package main

import (
	"fmt"
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
	scheme, user, path string // user with its '@'
	hosts              []string
	params             []string // name=value, as they were
	prefix             string   // from the params
	ttl                string   // from the params
}

// ownParams are left out: check and bench set them, or, as require, do not need them.
var ownParams = []string{"ttl", "renew", "prefix", "require", "token_base"}

// parse splits a URL that [locker.Open] has accepted.
func parse(rawURL string) deployment {
	var d deployment
	var query, rest string
	d.scheme, rest, _ = strings.Cut(rawURL, "://")
	d.scheme = strings.ToLower(d.scheme)
	rest, query, _ = strings.Cut(rest, "?")
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		rest, d.path = rest[:i], rest[i:]
	}
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		d.user, rest = rest[:i+1], rest[i+1:]
	}
	if rest != "" {
		d.hosts = strings.Split(rest, ",")
	}
	for _, param := range strings.FieldsFunc(query, func(r rune) bool { return r == '&' }) {
		name, value, _ := strings.Cut(param, "=")
		switch {
		case name == "prefix":
			d.prefix, _ = url.QueryUnescape(value)
		case name == "ttl":
			d.ttl = value
		case !slices.Contains(ownParams, name):
			d.params = append(d.params, param)
		}
	}
	return d
}

// url returns the deployment's URL with these hosts, which are its own or proxies.
func (d deployment) url(hosts []string) string {
	u := d.scheme + "://" + d.user + strings.Join(hosts, ",") + d.path
	if len(d.params) > 0 {
		u += "?" + strings.Join(d.params, "&")
	}
	return u
}

// only returns the parameters whose names are to stay.
func (d deployment) only(stays func(name string) bool) (params []string) {
	for _, p := range d.params {
		if name, _, _ := strings.Cut(p, "="); stays(name) {
			params = append(params, p)
		}
	}
	return params
}

// kind returns the scheme without TLS.
func (d deployment) kind() string {
	if b, ok := backends.Of(d.scheme); ok {
		return b.Schemes[0]
	}
	return d.scheme
}

// addresses returns the hosts with their ports, or nil if a client finds others by itself, or has to see a certificate for the
// name that it has dialled.
func (d deployment) addresses() []string {
	b, _ := backends.Of(d.scheme)
	if b.Port == "" || d.secure() || d.has("socket") || d.has("master_name") || d.has("cluster") {
		return nil
	}
	return adapter.Addrs(&driver.URL{Hosts: d.hosts}, b.Port)
}

// secure reports whether the servers use TLS, also those of a quorum.
func (d deployment) secure() bool {
	if d.kind() == "postgres" {
		return slices.Contains(d.params, "sslmode=verify-full") // with another a server may have any name
	}
	return d.scheme != d.kind() || slices.Contains(d.params, "driver=rediss") || slices.Contains(d.params, "driver=redigos")
}

func (d deployment) has(param string) bool {
	return slices.ContainsFunc(d.params, func(p string) bool { return strings.HasPrefix(p, param+"=") })
}

// String returns the URL without secrets and parameters.
func (d deployment) String() string {
	return fmt.Sprintf("%s://%s%s", d.scheme, strings.Join(d.hosts, ","), d.path)
}
