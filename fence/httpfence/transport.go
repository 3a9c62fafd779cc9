package httpfence

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-locker/locker/fence"
)

type transport struct {
	base  http.RoundTripper
	token func() uint64
}

// NewTransport returns an [http.RoundTripper] that sends the fencing token along, over base, or
// over [http.DefaultTransport] if base is nil. It sends the token of the request's context, see
// [WithToken]. If there is none, it calls token for each request, and sends what token returns;
// token may be nil. The FencingToken of a Locker will do for token. But that is the token of the
// current hold: if work may outlive its hold, and the next hold may have begun, use WithToken.
//
// A request that needs a token and has none, because the lock is not held, is not sent: the error
// matches [fence.ErrStale]. A request that is repeated, by the program or by net/http after a lost
// connection, has the same token and so is accepted again: a fence does not make a write
// idempotent.
//
// In a chain of redirects the token goes only to the origin of the first request: its scheme, host
// and port. If that origin redirects to another one, even from http to https, a write fails,
// because the other origin may have another fence, or none. A safe request goes there without the
// token. So write to the origin that has the fence.
func NewTransport(base http.RoundTripper, token func() uint64) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return &transport{base, token}
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	out := req.Clone(req.Context())
	if out.Header == nil {
		out.Header = make(http.Header)
	}
	out.Header.Del(Header)
	token, ok := req.Context().Value(tokenKey{}).(uint64)
	if !ok && t.token != nil {
		token = t.token()
	}
	switch {
	case first(req) != origin(req.URL):
		if !safe(req.Method) {
			return nil, refuse(req, fmt.Errorf("httpfence: %s: redirected to %s, and the fencing token is for another origin", req.Method, origin(req.URL)))
		}
	case token != 0:
		out.Header.Set(Header, strconv.FormatUint(token, 10))
	case !safe(req.Method):
		return nil, refuse(req, &fence.StaleError{Resource: req.URL.Path})
	}
	return t.base.RoundTrip(out)
}

// CloseIdleConnections is what an http.Client asks its Transport for.
func (t *transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// refuse closes the body, as a RoundTripper has to that sends no request.
func refuse(req *http.Request, err error) error {
	if req.Body != nil {
		_ = req.Body.Close()
	}
	return err
}

// first returns the origin of the first of the redirections that led to req, and "" if that is not known.
func first(req *http.Request) string {
	for req.Response != nil {
		if req.Response.Request == nil {
			return ""
		}
		req = req.Response.Request
	}
	return origin(req.URL)
}

// origin returns scheme, host and port.
func origin(u *url.URL) string {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "http":
		port = "80"
	case u.Scheme == "https":
		port = "443"
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}
