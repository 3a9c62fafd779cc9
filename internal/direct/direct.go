// Package direct is apart from adapter so that only backends over HTTP depend on net/http.
package direct

import (
	"net/http"
	"sync/atomic"
)

// Client returns a copy of c that follows no redirect: a caller gets the redirect's own status. After
// 301, 302 and 303 net/http repeats a write as a GET, whose 200 says nothing about the write, and it
// sends headers with secrets other than Authorization and Cookie to any host.
//
// A request without an answer takes the idle connections with it. They may all have fallen silent, as
// behind a firewall that has lost its table, and one after another would cost the next requests their
// time. New ones may work.
func Client(c *http.Client) *http.Client {
	direct := *c
	direct.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if direct.Transport == nil {
		direct.Transport = http.DefaultTransport
	}
	direct.Transport = &forgetting{RoundTripper: direct.Transport}
	return &direct
}

// forgetting is a transport that closes its idle connections before the next request after one that
// failed: by then a connection of HTTP/2 is idle that the failed request had to itself.
type forgetting struct {
	http.RoundTripper

	failed atomic.Bool
}

// RoundTrip implements [http.RoundTripper].
func (f *forgetting) RoundTrip(r *http.Request) (*http.Response, error) {
	if f.failed.Swap(false) {
		f.CloseIdleConnections()
	}
	answer, err := f.RoundTripper.RoundTrip(r)
	if err != nil {
		f.failed.Store(true)
	}
	return answer, err
}

// CloseIdleConnections is what [http.Client.CloseIdleConnections] looks for. The transports of
// client-go lack it, and tell what they wrap.
func (f *forgetting) CloseIdleConnections() {
	inner := f.RoundTripper
	for {
		w, ok := inner.(interface{ WrappedRoundTripper() http.RoundTripper })
		if !ok {
			break
		}
		inner = w.WrappedRoundTripper()
	}
	(&http.Client{Transport: inner}).CloseIdleConnections()
}
