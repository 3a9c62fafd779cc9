// Package direct is apart from adapter so that only backends over HTTP depend on net/http.
package direct

import "net/http"

// Client returns a copy of c that follows no redirect: a caller gets the redirect's own status. After
// 301, 302 and 303 net/http repeats a write as a GET, whose 200 says nothing about the write, and it
// sends headers with secrets other than Authorization and Cookie to any host.
func Client(c *http.Client) *http.Client {
	direct := *c
	direct.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &direct
}
