package testserver

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"time"
)

// httpClient returns a client of servers that have these certificates, or none. It keeps no
// connection, which a test that looks for leaks would find.
func httpClient(c *Certificates, limit time.Duration) *http.Client {
	transport := &http.Transport{DisableKeepAlives: true}
	if c != nil {
		transport.TLSClientConfig = &tls.Config{RootCAs: c.config.RootCAs, Certificates: c.config.Certificates}
	}
	return &http.Client{Transport: transport, Timeout: limit}
}

// answerTo returns the body of a response, which is an error if its status is one.
func answerTo(resp *http.Response, err error) (string, error) {
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s: %s", resp.Status, answer)
	}
	return string(answer), err
}
