// Package httpfence takes fencing tokens through HTTP: [NewTransport] sends the token with each
// write, and [Handler] refuses a write whose token is stale.
//
//	client := &http.Client{Transport: httpfence.NewTransport(nil, m.FencingToken)} // of a locker.Locker
//	resp, err := client.Do(req)
//	…
//	if err := httpfence.Check(resp); errors.Is(err, fence.ErrStale) { … }
//
// and at the resource
//
//	var guard fence.Memory // or filefence.Dir("/var/lib/shop/fence"), which survives a restart
//	mux.Handle("PUT /orders/{id}", httpfence.Handler(put, &guard, nil))
//
// # On the wire
//
// A request has the token as decimal digits in one header field, Fencing-Token. (It is not an
// Integer of Structured Fields: those have at most 15 digits, and tokens made from a clock have
// 16.) GET, HEAD, OPTIONS and TRACE need none. A request that is refused is answered with a problem
// of RFC 9457, application/problem+json, whose detail says why:
//
//	428  no token              type …/fence/httpfence#missing-token
//	400  not one number        type …/fence/httpfence#malformed-token
//	412  a stale token, or 0   type …/fence/httpfence#stale-token, members token and newest: strings of digits
//	503  fence.ErrUnknown,     type …/fence/httpfence#unknown-tokens
//	     from the guard
//	503  the guard has failed  type about:blank
//
// The URLs of the types lead to the README beside this file.
//
// # Servers without a fence
//
// Object stores, and other servers whose code is not yours, have no fence, but compare entity tags.
// [IfMatch] and [fence.Mark] are for those. The documentation of IfMatch and of fence.Mark says
// what this is worth.
package httpfence

import (
	"context"
	"net/http"
)

// Header is the name of the header field that has the token.
const Header = "Fencing-Token"

// safe are the methods that by their definition change nothing (RFC 9110, section 9.2.1).
func safe(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace: // empty: a client's GET
		return true
	}
	return false
}

type tokenKey struct{}

// WithToken returns a context whose requests have this token, whatever the function of their
// [NewTransport] says. It ties work to the hold that it was begun under:
//
//	ctx = httpfence.WithToken(ctx, hold.Token())
//
// The token is sent even after that hold has ended. It is refused as soon as a later holder has
// written.
func WithToken(ctx context.Context, token uint64) context.Context {
	return context.WithValue(ctx, tokenKey{}, token)
}
