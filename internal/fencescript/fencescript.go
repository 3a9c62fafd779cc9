// Package fencescript is the fence on a Redis server, whatever the client library: the Lua, its
// arguments and its answers.
package fencescript

import (
	"context"
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

// Eval runs the script of a fence through a client library. It returns nil for a script that
// returns nothing.
type Eval func(keys []string, args []any) (any, error)

// RunSet runs Set for package pkg, by eval. An expiry of 0 is none.
func RunSet(ctx context.Context, pkg, key string, token uint64, value any, expiry time.Duration, eval Eval) error {
	w, args := Write{Package: pkg, Resource: key, TokenKey: TokenKey(key), Token: token}, []any{value}
	if expiry < 0 || expiry%time.Millisecond != 0 {
		return w.wrap(fmt.Errorf("an expiry of %v: Redis takes whole milliseconds, and 0 is none", expiry))
	}
	if expiry > 0 {
		args = append(args, "PX", expiry.Milliseconds())
	}
	_, err := w.Run(ctx, []string{key}, args, eval)
	return err
}

// Write is one that a token guards.
type Write struct {
	Package  string // whose errors these are
	Resource string // what they call it
	TokenKey string
	Token    uint64
}

// Run has eval make the write, unless it is to be refused at once. A script that wrote the token's
// key would have data compared as a token.
func (w Write) Run(ctx context.Context, keys []string, args []any, eval Eval) (any, error) {
	if err := fence.Check(w.Resource, w.Token, 0); err != nil {
		return nil, err
	}
	if slices.Contains(keys, w.TokenKey) {
		return nil, w.wrap(fmt.Errorf("key %q is the script's: the token has to have a key of its own, see TokenKey", w.TokenKey))
	}
	if ctx.Err() != nil { // redigo looks at it when the request is on its way
		return nil, w.wrap(context.Cause(ctx))
	}
	reply, err := eval(append([]string{w.TokenKey}, keys...), append([]any{strconv.FormatUint(w.Token, 10)}, args...))
	return reply, w.explain(err)
}

// explain returns err, of the client library, in terms of the fence.
func (w Write) explain(err error) error {
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
	return w.wrap(err)
}

// wrap adds the package and the resource to err.
func (w Write) wrap(err error) error { return fmt.Errorf("%s: %q: %w", w.Package, w.Resource, err) }

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
