// Package fuzzurl feeds adapters URLs that nobody would write, and looks for their passwords where they must not be.
package fuzzurl

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
)

// Secret is in every password.
const Secret = "S3CRET"

var schemes atomic.Int64

// errParsed ends an Open once the URL has been taken apart.
var errParsed = errors.New("parsed")

// Run fuzzes open, which makes a Driver for scheme and connects to nothing. It may return neither a Driver nor an
// error. Seeds are what comes after scheme://, without a user.
func Run(f *testing.F, scheme string, open driver.OpenFunc, seeds ...string) {
	f.Helper()
	for _, rest := range seeds {
		f.Add("", "", rest)
		f.Add("p@", "/?#&=%zz:", rest)
		f.Add("", "@h1,u:", rest) // users in a list of hosts
	}
	var u *driver.URL
	parser := fmt.Sprintf("fuzz%d", schemes.Add(1))
	driver.Register(parser, func(_ context.Context, parsed *driver.URL) (driver.Driver, error) {
		u = parsed
		return nil, errParsed
	})
	f.Fuzz(func(t *testing.T, before, after, rest string) {
		if Shows(rest) || strings.Contains(rest, "/dev/") { // a file without an end is no certificate
			return
		}
		for _, raw := range urls(before+Secret+after, rest) {
			_, err := locker.Open(t.Context(), parser+"://"+raw)
			var d driver.Driver
			if errors.Is(err, errParsed) {
				u.Scheme = scheme
				checkPrinted(t, raw, u, *u)
				d, err = open(t.Context(), u)
			}
			if err != nil {
				if Shows(err.Error()) {
					t.Errorf("%s://%s: the error shows the password: %v", scheme, raw, err)
				}
				continue
			}
			checkPrinted(t, raw, d, u, u.Unknown())
			if d != nil {
				_ = d.Close()
			}
		}
	})
}

// urls have a password where there may be one, escaped in several ways and not at all.
func urls(password, rest string) []string {
	all := escapeAll(password)
	parameter := "?sentinel_password="
	if strings.Contains(rest, "?") {
		parameter = "&sentinel_password="
	}
	return []string{
		"u:" + password + "@" + rest,
		url.UserPassword("u", password).String() + "@" + rest,
		":" + all + "@" + rest,
		rest + parameter + url.QueryEscape(password),
		rest + parameter + all,
	}
}

// escapeAll escapes each byte of s, in lower case.
func escapeAll(s string) string {
	var escaped strings.Builder
	for _, b := range []byte(s) {
		fmt.Fprintf(&escaped, "%%%02x", b)
	}
	return escaped.String()
}

func checkPrinted(t *testing.T, raw string, values ...any) {
	t.Helper()
	for _, v := range values {
		for _, verb := range []string{"%v", "%+v", "%#v"} {
			if text := fmt.Sprintf(verb, v); Shows(text) {
				t.Errorf("%s: %s of %T shows the password: %s", raw, verb, v, text)
			}
		}
	}
}

// Shows reports whether the Secret can be read in text, as it is or escaped.
func Shows(text string) bool {
	digits := hex.EncodeToString([]byte(Secret))
	text = strings.ToLower(text)
	for _, form := range []string{strings.ToLower(Secret), digits, escapeAll(Secret), strings.Trim(fmt.Sprint([]byte(Secret)), "[]")} {
		if strings.Contains(text, form) {
			return true
		}
	}
	return false
}
