package locker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-locker/locker/driver"
)

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
//	backoff=10ms,1s    as WithBackoff: minimum, maximum
//	require=fencing,…  as Require
//
// docs/urls.md in the repository lists the parameters of all backends in one table. A parameter of
// the URL wins over an option of opts. The guarantees of require and of Require add up. A parameter
// that is unknown, given twice or malformed is an error, before anything is connected. So is a
// scheme that no imported package has registered.
//
// ctx bounds Open itself. Most backends are not contacted before the first Lock, so that an
// application starts while its backend is unreachable. No error of Open shows the password.
func Open(ctx context.Context, rawURL string, opts ...Option) (*Client, error) {
	c, err := openClient(ctx, rawURL, opts)
	if e, ok := err.(*Error); ok { //nolint:errorlint // the outermost alone
		err = e.Err // of an adapter's NewDriver: here it is Open that failed
	}
	return c, wrap("open", "", err)
}

func openClient(ctx context.Context, rawURL string, opts []Option) (*Client, error) {
	if ctx.Err() != nil {
		return nil, interrupted(ctx, nil)
	}
	u, err := driver.ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	params, err := takeOptions(u)
	if err != nil {
		return nil, err
	}
	own, err := configured(append(slices.Clip(opts), params...)) // before anybody is asked anything
	if err != nil {
		return nil, err
	}
	d, err := driver.Open(ctx, u)
	if err != nil {
		return nil, err
	}
	if err = u.Unknown(); err == nil {
		var c *Client
		if c, err = newClient(d, own); err == nil {
			return c, nil
		}
	}
	_ = d.Close()
	return nil, err
}

// takeOptions takes the parameters off the URL that every backend has.
func takeOptions(u *driver.URL) ([]Option, error) {
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
