package target

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

// Deployment is a URL in parts, of which others are made: without the user's settings for locks, or
// through a proxy.
type Deployment struct {
	driver.URL

	Prefix string // from the query
}

// ownParams are left out: check and bench set them, or, as require, do not need them.
var ownParams = []string{"ttl", "renew", "prefix", "require", "token_base"}

// Parse splits a URL that [locker.Open] has accepted.
func Parse(rawURL string) Deployment {
	u, err := driver.ParseURL(rawURL)
	if err != nil {
		return Deployment{}
	}
	d := Deployment{URL: *u, Prefix: u.Query.Get("prefix")}
	return d.Only(func(name string) bool { return !slices.Contains(ownParams, name) })
}

// At returns the Deployment's URL with these hosts, which are its own or proxies.
func (d Deployment) At(hosts []string) string {
	user := ""
	if d.User != nil {
		user = d.User.String() + "@"
	}
	path := strings.NewReplacer("@", "%40").Replace((&url.URL{Path: d.Path}).EscapedPath())
	return strings.TrimSuffix(d.Scheme+"://"+user+strings.Join(hosts, ",")+path+"?"+d.Query.Encode(), "?")
}

// Only returns d with the parameters whose names are to stay.
func (d Deployment) Only(stays func(name string) bool) Deployment {
	d.Query = maps.Clone(d.Query)
	maps.DeleteFunc(d.Query, func(name string, _ []string) bool { return !stays(name) })
	return d
}

// With returns d with a parameter.
func (d Deployment) With(name, value string) Deployment {
	d.Query = maps.Clone(d.Query)
	d.Query.Set(name, value)
	return d
}

// Kind returns the scheme without TLS.
func (d Deployment) Kind() string {
	if b, ok := backends.Of(d.Scheme); ok {
		return b.Schemes[0]
	}
	return d.Scheme
}

// Addresses returns the hosts with their ports, or nil if a client finds others by itself, or has to
// see a certificate for the name that it has dialled.
func (d Deployment) Addresses() []string {
	b, _ := backends.Of(d.Scheme)
	if b.Port == "" || d.Secure() || d.Query.Has("socket") || d.Query.Has("master_name") || d.Query.Has("cluster") {
		return nil
	}
	return adapter.Addrs(&d.URL, b.Port)
}

// Secure reports whether all servers use TLS, those of a quorum included.
func (d Deployment) Secure() bool {
	if d.Kind() == "postgres" {
		return d.Query.Get("sslmode") == "verify-full" // with another a server may have any name
	}
	return d.Scheme != d.Kind() || slices.Contains([]string{"rediss", "redigos"}, d.Query.Get("driver"))
}

// String returns the URL without secrets and parameters.
func (d Deployment) String() string {
	return fmt.Sprintf("%s://%s%s", d.Scheme, strings.Join(d.Hosts, ","), d.Path)
}
