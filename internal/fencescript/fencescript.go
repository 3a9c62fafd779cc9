// Package fencescript is the fence on a Redis server, whatever the client library: the Lua, its
// arguments and its answers.
package fencescript

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-locker/locker/fence"
)

//go:embed fence.lua
var fenceSource string

// Source returns a script that runs body if the token is not stale. The lines of body keep their
// numbers, by which Redis says where an error is.
func Source(body string) string {
	return "local function write(KEYS, ARGV) " + body + "\nend\n" + fenceSource
}

// Set is the body that sets one key.
const Set = "return redis.call('SET', KEYS[1], unpack(ARGV))"

// OfSet returns the write of package pkg that sets key, and the arguments of Set for it. An expiry
// of 0 is none.
func OfSet(pkg, key string, token uint64, value any, expiry time.Duration) (w Write, args []any, err error) {
	w = Write{Package: pkg, Resource: key, TokenKey: TokenKey(key), Token: token}
	switch {
	case expiry == 0:
		return w, []any{value}, nil
	case expiry < 0 || expiry%time.Millisecond != 0:
		return w, nil, w.Wrap(fmt.Errorf("an expiry of %v: Redis takes whole milliseconds, and 0 is none", expiry))
	default:
		return w, []any{value, "PX", expiry.Milliseconds()}, nil
	}
}

// Write is one that a token guards.
type Write struct {
	Package  string // whose errors these are
	Resource string // what they call it
	TokenKey string
	Token    uint64
}

// CheckKeys refuses a script that has the token's key among its own: what it writes there would be
// compared as a token.
func (w Write) CheckKeys(keys []string) error {
	if slices.Contains(keys, w.TokenKey) {
		return w.Wrap(fmt.Errorf("key %q is the script's: the token has to have a key of its own, see TokenKey", w.TokenKey))
	}
	return nil
}

// Args returns the arguments that the script takes.
func Args(token uint64, args []any) []any {
	return append([]any{strconv.FormatUint(token, 10)}, args...)
}

// Explain returns err, of the client library, in terms of the fence.
func (w Write) Explain(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if newest, ok := strings.CutPrefix(text, "STALETOKEN "); ok {
		if newest, parseErr := strconv.ParseUint(newest, 10, 64); parseErr == nil {
			return &fence.StaleError{Resource: w.Resource, Token: w.Token, Newest: newest}
		}
	}
	switch {
	case strings.HasPrefix(text, "STALETOKEN "), strings.HasPrefix(text, "NOTOKEN in that key"):
		err = fmt.Errorf("%w: key %q holds no token: %w", fence.ErrUnknown, w.TokenKey, err)
	case strings.HasPrefix(text, "CROSSSLOT"):
		err = fmt.Errorf("the token's key %q and all keys that are written have to share a slot, see TokenKey: %w", w.TokenKey, err)
	}
	return w.Wrap(err)
}

// Wrap adds the package and the resource to err.
func (w Write) Wrap(err error) error { return fmt.Errorf("%s: %q: %w", w.Package, w.Resource, err) }

// TokenKey returns a key for the token that guards key, on the same slot of a Redis Cluster. It
// begins with fence:, and no two keys have the same. A key with a '}' but without a hash tag has to
// be its own tag, and cannot be: its token is on another slot.
func TokenKey(key string) string {
	if tag, ok := hashTag(key); ok {
		return "fence:{" + tag + "}:" + key
	}
	if strings.Contains(key, "}") {
		return "fence:{}:" + key
	}
	return "fence:{" + key + "}"
}

// hashTag returns the part of a key that decides on its slot, between its first '{' and the next
// '}', if there is one.
func hashTag(key string) (tag string, ok bool) {
	_, behind, _ := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(behind, "}")
	return tag, closed && tag != ""
}
