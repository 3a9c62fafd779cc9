package locker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// OpenFunc makes the Driver that a URL describes. It takes off u.Query, with [URL.Take] or Del, each
// parameter that it knows; Open refuses what is left. The Driver owns what OpenFunc makes: its
// Close closes it.
type OpenFunc func(ctx context.Context, u *URL) (Driver, error)

var registry struct {
	sync.Mutex
	schemes map[string]OpenFunc
}

// adapters names the import for each scheme of this module, for the error of Open where it is missing.
var adapters = map[string]string{
	"etcd":       "etcd",
	"etcds":      "etcd",
	"mem":        "memory",
	"redigo":     "redigo",
	"redigos":    "redigo",
	"redlock":    "redlock",
	"redis":      "redis",
	"rediss":     "redis",
	"zookeeper":  "zookeeper",
	"zookeepers": "zookeeper",
}

// Register makes a scheme known to [Open]. Adapters call it in their init. It panics if the scheme is
// empty, not in lower case, or registered already, and if open is nil.
func Register(scheme string, open OpenFunc) {
	if scheme == "" || scheme != strings.ToLower(scheme) {
		panic(fmt.Sprintf("locker: Register of scheme %q: must be in lower case and not empty", scheme))
	}
	if open == nil {
		panic(fmt.Sprintf("locker: Register of scheme %q: nil OpenFunc", scheme))
	}
	registry.Lock()
	defer registry.Unlock()
	if _, dup := registry.schemes[scheme]; dup {
		panic(fmt.Sprintf("locker: Register of scheme %q: registered already", scheme))
	}
	if registry.schemes == nil {
		registry.schemes = map[string]OpenFunc{}
	}
	registry.schemes[scheme] = open
}

// Schemes lists, in order, what is registered: what Open opens.
func Schemes() []string {
	registry.Lock()
	defer registry.Unlock()
	return slices.Sorted(maps.Keys(registry.schemes))
}

func opener(scheme string) (OpenFunc, error) {
	registry.Lock()
	open, ok := registry.schemes[scheme]
	registry.Unlock()
	if ok {
		return open, nil
	}
	if pkg, ok := adapters[scheme]; ok {
		return nil, fmt.Errorf("unknown scheme %q: add the import _ \"github.com/go-locker/locker/%s\"", scheme, pkg)
	}
	known := "none is registered: import the package of a backend"
	if schemes := Schemes(); len(schemes) > 0 {
		known = "registered are " + strings.Join(schemes, ", ")
	}
	return nil, fmt.Errorf("unknown scheme %q: %s", scheme, known)
}

// Open makes a Client for the backend that rawURL describes:
//
//	scheme://[user[:password]@]host[:port][,host[:port]…][/path][?parameter=value&…]
//
// The package that registers the scheme must be imported; its documentation lists the parameters it
// takes. Every backend takes
//
//	ttl=10s            as WithTTL
//	renew=false        as WithoutRenewal
//	prefix=app         as WithPrefix
//	token_base=1000    as WithTokenBase
//	metadata=web-3     as WithMetadata
//	backoff=10ms,1s    as WithBackoff, of least and most
//	require=fencing,…  as Require
//
// docs/urls.md in the repository has those of all backends in one table. A parameter of the URL wins over
// an option of opts; what both require is required. A parameter that nobody knows, one that is given
// twice, and one that is malformed are errors, and they come before anybody is connected to.
//
// ctx bounds Open itself. Most backends are not contacted before the first Lock, so that an
// application starts while its backend is away. No error of Open shows the password.
func Open(ctx context.Context, rawURL string, opts ...Option) (*Client, error) {
	c, err := openClient(ctx, rawURL, opts)
	if e, ok := err.(*Error); ok { //nolint:errorlint // the outermost alone
		err = e.Err // of New, or of an adapter's own: here it is Open that failed
	}
	return c, wrap("open", "", err)
}

func openClient(ctx context.Context, rawURL string, opts []Option) (*Client, error) {
	if ctx.Err() != nil {
		return nil, interrupted(ctx, nil)
	}
	u, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	open, err := opener(u.Scheme)
	if err != nil {
		return nil, err
	}
	own, err := takeOptions(u)
	if err != nil {
		return nil, err
	}
	opts = append(slices.Clip(opts), own...)
	if _, err := configured(opts); err != nil { // before anybody is asked anything
		return nil, err
	}
	d, err := open(ctx, u)
	if err != nil {
		return nil, err
	}
	if d == nil {
		return nil, fmt.Errorf("the package of %s:// returned no Driver", u.Scheme)
	}
	if err := u.Unknown(); err != nil {
		_ = d.Close()
		return nil, err
	}
	c, err := New(d, opts...)
	if err != nil {
		_ = d.Close()
		return nil, err
	}
	return c, nil
}

// takeOptions takes the parameters off the URL that every backend has.
func takeOptions(u *URL) ([]Option, error) {
	var opts []Option
	for _, p := range []struct {
		name, want string
		parse      func(value string) (Option, error)
	}{
		{"ttl", "a duration such as 10s", func(v string) (Option, error) {
			d, err := time.ParseDuration(v)
			return WithTTL(d), err
		}},
		{"renew", "true or false", func(v string) (Option, error) {
			renew, err := strconv.ParseBool(v)
			return mutexOption(func(s *settings) error { s.renew = renew; return nil }), err
		}},
		{"prefix", "a string", func(v string) (Option, error) { return WithPrefix(v), nil }},
		{"token_base", "a whole number", func(v string) (Option, error) {
			n, err := strconv.ParseUint(v, 10, 64)
			return WithTokenBase(n), err
		}},
		{"metadata", "a string", func(v string) (Option, error) { return WithMetadata(v), nil }},
		{"backoff", "two durations such as 10ms,1s", parseBackoff},
		{"require", "a list of guarantees", func(v string) (Option, error) {
			var required []Guarantee
			for g := range strings.SplitSeq(v, ",") {
				required = append(required, Guarantee(strings.TrimSpace(g)))
			}
			return Require(required...), nil
		}},
	} {
		value, ok := u.Take(p.name)
		if !ok {
			continue
		}
		opt, err := p.parse(value)
		if err != nil {
			return nil, fmt.Errorf("parameter %s=%q is not %s", p.name, value, p.want)
		}
		opts = append(opts, opt)
	}
	return opts, nil
}

func parseBackoff(v string) (Option, error) {
	least, most, ok := strings.Cut(v, ",")
	if !ok {
		return nil, errors.New("one duration")
	}
	minimum, err1 := time.ParseDuration(least)
	maximum, err2 := time.ParseDuration(most)
	return WithBackoff(minimum, maximum), errors.Join(err1, err2)
}
