package driver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/fuzzurl"
	"github.com/go-locker/locker/memory"
)

var schemes atomic.Int64

// scheme registers open under a scheme that nothing else has.
func scheme(open driver.OpenFunc) string {
	s := fmt.Sprintf("test%d", schemes.Add(1))
	driver.Register(s, open)
	return s
}

// parse takes the part of a URL after scheme:// apart.
func parse(rest string) (*driver.URL, error) { return driver.ParseURL("s://" + rest) }

func TestURL_parts(t *testing.T) {
	for rest, want := range map[string]driver.URL{
		"":                        {},
		"/":                       {Path: "/"},
		"h":                       {Hosts: []string{"h"}},
		"h:6379":                  {Hosts: []string{"h:6379"}},
		"h1:1,h2,h3:65535":        {Hosts: []string{"h1:1", "h2", "h3:65535"}},
		"10.0.0.1:6379":           {Hosts: []string{"10.0.0.1:6379"}},
		"[::1]":                   {Hosts: []string{"[::1]"}},
		"[::1]:6379,[fe80::2]:1":  {Hosts: []string{"[::1]:6379", "[fe80::2]:1"}},
		"[fe80::1%25eth0]:6379":   {Hosts: []string{"[fe80::1%eth0]:6379"}},
		"[fe80::1%25]":            {Hosts: []string{"[fe80::1%25]"}},
		"[fe80::1%eth0]:6379":     {Hosts: []string{"[fe80::1%eth0]:6379"}},
		"h/0":                     {Hosts: []string{"h"}, Path: "/0"},
		"h/a%2Fb%20c":             {Hosts: []string{"h"}, Path: "/a/b c"},
		"h?":                      {Hosts: []string{"h"}},
		"h?a=1&b=x%26y+z":         {Hosts: []string{"h"}, Query: url.Values{"a": {"1"}, "b": {"x&y z"}}},
		"h/p?a=/?":                {Hosts: []string{"h"}, Path: "/p", Query: url.Values{"a": {"/?"}}},
		"user@h":                  {Hosts: []string{"h"}, User: url.User("user")},
		"user:@h":                 {Hosts: []string{"h"}, User: url.UserPassword("user", "")},
		":pw@h":                   {Hosts: []string{"h"}, User: url.UserPassword("", "pw")},
		"us%3Aer:p%40s%2Fs%25@h":  {Hosts: []string{"h"}, User: url.UserPassword("us:er", "p@s/s%")},
		"user:p%40ss:w+rd@h1,h2":  {Hosts: []string{"h1", "h2"}, User: url.UserPassword("user", "p@ss:w+rd")},
		"user:pw@[::1]:6379,h2/0": {Hosts: []string{"[::1]:6379", "h2"}, User: url.UserPassword("user", "pw"), Path: "/0"},
	} {
		t.Run(rest, func(t *testing.T) {
			got, err := parse(rest)
			require.NoError(t, err)
			assert.Equal(t, want.Hosts, got.Hosts)
			assert.Equal(t, want.User, got.User)
			assert.Equal(t, want.Path, got.Path)
			assert.Len(t, got.Query, len(want.Query))
			for name, values := range want.Query {
				assert.Equal(t, values, got.Query[name])
			}
		})
	}
}

func TestURL_refuses(t *testing.T) {
	for want, all := range map[string][]string{
		"in the list of hosts": {
			"h:", "h:0", "h:65536", "h:port", "h:-1", "h:+1", ":6379", "h1,,h2", ",", "h,", "::1", "[::1", "::1]", "[h]", "[::1]x",
			"[::1]:", "h h", "h\x00", "h%20", "[]", "[10.0.0.1]", "a:1:2", "h|x", "\"h\"", "[::1%2 ]", "[::1%25a b]",
		},
		"%-escape": {"h/%zz", "h/%", "us%er@h", "user:%zz@h", "h?a=%z"},
		// Else a host that stands before the last '@' would be taken for a piece of the password.
		"%40": {
			"user:se@cret@h", "us@er:secret@h", "user@secret@h", "user:secret@h1,h2@h3", "user:secret@h1,user:secret@h2",
			"user:secret@@h", "@@", "user:secret@h@", "user:secret%40@h@[::1]:6379/0?a=b",
		},
		// Else user would be the host, 1 its port, and the password part of the path.
		"in a password escape": {"user:1/secret@h", "user:1?a=secret@h", "user:1#secret@h"},
	} {
		for _, rest := range all {
			_, err := parse(rest)
			require.ErrorContains(t, err, want, "%q", rest)
			assert.NotContains(t, err.Error(), "cret", rest)
		}
	}
}

func TestURL_withoutAScheme(t *testing.T) {
	for _, raw := range []string{"", "localhost:6379", "://h", "redis:/h", "user:secret@h", "/a://b", "user:secret@h://"} {
		_, err := locker.Open(t.Context(), raw)
		require.ErrorContains(t, err, "must begin with scheme://", "%q", raw)
		assert.NotContains(t, err.Error(), "secret")
	}
}

func TestURL_noErrorShowsThePassword(t *testing.T) {
	s := scheme(func(context.Context, *driver.URL) (driver.Driver, error) { return nil, errors.New("refused") })
	for _, password := range []string{
		"secret", "/secret", "?secret", "#secret", "se@secret", "a/secret?b#c@d", "?ttl=secret", "?secret=1&secret=2", "?secret",
		"%zzsecret", "secret%", ":secret", "a://secret", "[secret", "secret,secret", "/%zzsecret", "?a=%zzsecret", "/secret?secret=1",
	} {
		for _, rest := range []string{"h", "h:0", "h/0", "h?color=red", "h?ttl=x", "h?a=1&a=2", "", ",", "[::1"} {
			for _, scheme := range []string{s, "redis", "unknown"} {
				_, err := locker.Open(t.Context(), scheme+"://user:"+password+"@"+rest)
				require.Error(t, err)
				assert.NotContains(t, err.Error(), "secret", "%s://user:%s@%s", scheme, password, rest)
			}
		}
	}
}

// It may be the user's, or a parameter's value.
func TestURL_noWayOfPrintingItShowsThePassword(t *testing.T) {
	u := &driver.URL{
		Scheme: "redis", User: url.UserPassword("user", "secret"), Hosts: []string{"h1:1", "h2"}, Path: "/0",
		Query: url.Values{"a": {"b"}, "sentinel_password": {"secret"}, "Password": {"secret"}},
	}
	var printed strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%t"} {
		for _, what := range []any{u, *u, []driver.URL{*u}, []*driver.URL{u}, struct{ URL driver.URL }{*u}, struct{ URL *driver.URL }{u}} {
			fmt.Fprintf(&printed, verb, what)
		}
	}
	require.NoError(t, json.NewEncoder(&printed).Encode(map[string]any{"url": u, "urls": []driver.URL{*u}}))
	slog.New(slog.NewJSONHandler(&printed, nil)).Info("opening", "url", *u)
	slog.New(slog.NewTextHandler(&printed, nil)).Info("opening", "url", *u)
	assert.NotContains(t, printed.String(), "secret")
	assert.NotContains(t, printed.String(), fmt.Sprintf("%x", "secret"))
	assert.Equal(t, "redis://user:xxxxx@h1:1,h2/0?Password=xxxxx&a=b&sentinel_password=xxxxx", u.String())
	assert.Equal(t, "secret", u.Query.Get("sentinel_password"), "it is what it was")
}

// A Driver made of Drivers may open them at once.
func TestURL_takeOfCopiesAtOnce(t *testing.T) {
	nodes := scheme(func(_ context.Context, u *driver.URL) (driver.Driver, error) {
		for _, name := range []string{"a", "b"} {
			u.Take(name)
		}
		return memory.NewDriver(), nil
	})
	made := scheme(func(ctx context.Context, u *driver.URL) (driver.Driver, error) {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				own := *u
				own.Scheme, own.Query = nodes, url.Values{}
				_, err := driver.Open(ctx, &own)
				assert.NoError(t, err)
			})
		}
		all.Wait()
		return memory.NewDriver(), nil
	})
	_, err := locker.Open(t.Context(), made+"://h?c=1")
	require.ErrorContains(t, err, "known are a, b, backoff,")
}

// What passwords may leak by, package fuzzurl looks for at each adapter.
func FuzzParseURL(f *testing.F) {
	fuzzurl.Run(f, "fuzzed", func(_ context.Context, u *driver.URL) (driver.Driver, error) {
		clear(u.Query)
		return memory.NewDriver(), nil
	}, "h", "h1:1,[::1%25eth0]:2/0?a=b&ttl=1s", "[", "%", "h?=", ",:", "h/%40?a=%zz")
}

// The URL that Open sees has parts that an adapter can rely on, and prints as what is taken for the
// same.
func FuzzParseURL_isStable(f *testing.F) {
	for _, seed := range []string{
		"h", "user@h1:1,[::1]:2/0?a=b&b=%26+%2B", "[fe80::1%25eth0]:1", "[fe80::1%eth0]", "u%40%3A@h/%40/%23%3F%25", "/a%20b", "?a=", "é,ü", ":@h", "@", "u@a,u@b",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, rest string) {
		u, err := parse(rest)
		if err != nil {
			return
		}
		for _, h := range u.Hosts {
			assert.NotEmpty(t, h)
			assert.False(t, strings.ContainsAny(h, "/?#@, "), "%q", h)
		}
		assert.True(t, u.Path == "" || u.Path[0] == '/', "%q", u.Path)
		text := u.String()
		if strings.Contains(text, "xxxxx") {
			return
		}
		_, again, _ := strings.Cut(text, "://")
		back, err := parse(again)
		require.NoError(t, err, "%q of %q", text, rest)
		assert.Equal(t, u.User, back.User)
		assert.Equal(t, u.Hosts, back.Hosts)
		assert.Equal(t, u.Path, back.Path)
		assert.Equal(t, u.Query, back.Query)
	})
}
