package httpfence_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/httpfence"
)

func bodyOf(body []string) io.Reader {
	if len(body) == 0 {
		return nil
	}
	return strings.NewReader(strings.Join(body, ""))
}

// tripper is what a Transport sends by.
type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// echo answers with nothing, and keeps what was sent.
func echo(sent **http.Request) tripper {
	return func(req *http.Request) (*http.Response, error) {
		*sent = req
		return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Request: req}, nil
	}
}

func token(n uint64) func() uint64 { return func() uint64 { return n } }

func TestTransport_leavesTheRequestAsItWas(t *testing.T) {
	var sent *http.Request
	req := request(t, "PUT", "http://x/", "new")
	req.Header.Set("Fencing-Token", "the caller's own")
	req.Header.Set("X-Other", "kept")
	resp, err := httpfence.NewTransport(echo(&sent), token(33)).RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.Header{"Fencing-Token": {"the caller's own"}, "X-Other": {"kept"}}, req.Header)
	assert.Equal(t, http.Header{"Fencing-Token": {"33"}, "X-Other": {"kept"}}, sent.Header)

	req.Header = nil
	resp, err = httpfence.NewTransport(echo(&sent), token(33)).RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Nil(t, req.Header)
}

// closing notes that a body is closed.
type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}

func TestTransport_sendsNoWriteOfNobody(t *testing.T) {
	none := httpfence.NewTransport(tripper(func(*http.Request) (*http.Response, error) {
		t.Error("it is sent")
		return nil, errors.New("sent")
	}), token(0))
	for _, method := range []string{"PUT", "POST", "PATCH", "DELETE", "CONNECT", "PURGE", "put", "get"} {
		req := request(t, method, "http://user:secret@x/orders/42?key=secret")
		body := &closing{Reader: strings.NewReader("new")}
		req.Body = body
		_, err := none.RoundTrip(req)
		var stale *fence.StaleError
		require.ErrorAs(t, err, &stale, method)
		assert.Equal(t, fence.StaleError{Resource: "/orders/42"}, *stale)
		assert.NotContains(t, err.Error(), "secret")
		assert.True(t, body.closed)
	}
	_, err := none.RoundTrip(request(t, "PUT", "http://x/"))
	require.ErrorIs(t, err, fence.ErrStale, "without a body")

	lost := request(t, "PUT", "http://x/")
	lost = lost.WithContext(httpfence.WithToken(lost.Context(), 0))
	_, err = httpfence.NewTransport(none, token(33)).RoundTrip(lost)
	require.ErrorIs(t, err, fence.ErrStale, "the context's token goes before, also if it is 0")

	_, err = (&http.Client{Transport: none}).Do(request(t, "PUT", "http://x/"))
	require.ErrorIs(t, err, fence.ErrStale, "through a client")
}

func TestTransport_readsWithoutAToken(t *testing.T) {
	for _, method := range []string{"", "GET", "HEAD", "OPTIONS", "TRACE"} {
		var sent *http.Request
		req := request(t, "GET", "http://x/")
		req.Method = method
		resp, err := httpfence.NewTransport(echo(&sent), token(0)).RoundTrip(req)
		require.NoError(t, err, method)
		require.NoError(t, resp.Body.Close())
		assert.NotContains(t, sent.Header, "Fencing-Token")
	}
}

// fenced is client, with a Transport of token 33.
func fenced(client *http.Client) *http.Client {
	c := *client
	c.Transport = httpfence.NewTransport(client.Transport, token(33))
	return &c
}

// A host may have a service on each of its ports, and only one of them a fence.
func TestTransport_takesNoTokenToAnotherOrigin(t *testing.T) {
	for _, c := range []struct {
		from, to string
		same     bool
	}{
		{"http://x/from", "http://x/to", true},
		{"http://x/from", "http://x:80/to", true},
		{"https://x:443/from", "https://X/to", true},
		{"http://[::1]:8080/from", "http://[::1]:8080/to", true},
		{"http://x:/from", "http://x/to", true},
		{"http://x/from", "http://x:8080/to", false},
		{"http://x:8080/from", "http://x:8081/to", false},
		{"http://x/from", "https://x/to", false},
		{"https://x/from", "http://x/to", false},
		{"https://x/from", "http://x:443/to", false},
		{"http://x/from", "http://y/to", false},
	} {
		for _, method := range []string{http.MethodPut, http.MethodGet} {
			var sent []string
			base := tripper(func(req *http.Request) (*http.Response, error) {
				sent = append(sent, req.Method+" "+req.URL.Path+" "+req.Header.Get("Fencing-Token"))
				resp := &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Request: req}
				next := map[string]string{"/from": strings.Replace(c.to, "/to", "/on", 1), "/on": "/to"}[req.URL.Path]
				if next != "" {
					resp.StatusCode, resp.Header = http.StatusTemporaryRedirect, http.Header{"Location": {next}}
				}
				return resp, nil
			})
			req := request(t, method, c.from, "new")
			req.Header.Set("Fencing-Token", "33") // which net/http takes along
			resp, err := fenced(&http.Client{Transport: base}).Do(req)
			name := method + " " + c.from + " to " + c.to
			switch {
			case c.same:
				require.NoError(t, err, name)
				assert.Equal(t, []string{method + " /from 33", method + " /on 33", method + " /to 33"}, sent, name)
			case method == http.MethodPut:
				require.ErrorContains(t, err, "redirected to "+strings.TrimSuffix(c.to, "/to"), name)
				require.NotErrorIs(t, err, fence.ErrStale)
				assert.Equal(t, []string{method + " /from 33"}, sent, name)
			default:
				require.NoError(t, err, name)
				assert.Equal(t, []string{method + " /from 33", method + " /on ", method + " /to "}, sent, name)
			}
			if resp != nil {
				require.NoError(t, resp.Body.Close())
			}
		}
	}
}

// Some RoundTrippers do not say to which request a response is.
func TestTransport_trustsNoRedirectionOfUnknownOrigin(t *testing.T) {
	calls := 0
	c := &http.Client{Transport: httpfence.NewTransport(tripper(func(*http.Request) (*http.Response, error) {
		calls++
		return &http.Response{
			StatusCode: http.StatusTemporaryRedirect, Header: http.Header{"Location": {"http://x/to"}}, Body: http.NoBody,
		}, nil
	}), token(33))}
	_, err := c.Do(request(t, "PUT", "http://x/from"))
	require.ErrorContains(t, err, "redirected")
	assert.Equal(t, 1, calls)
}

// closer counts how often its idle connections are closed.
type closer struct {
	tripper
	closed int
}

func (c *closer) CloseIdleConnections() { c.closed++ }

func TestTransport_closesTheIdleConnectionsOfItsBase(t *testing.T) {
	var base closer
	(&http.Client{Transport: httpfence.NewTransport(&base, nil)}).CloseIdleConnections()
	assert.Equal(t, 1, base.closed)
	(&http.Client{Transport: httpfence.NewTransport(base.tripper, nil)}).CloseIdleConnections() // which has none
}

const patience = time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve is the URL of a server of its own, and a client with connections of its own.
func serve(t testing.TB, h http.Handler) (string, *http.Client) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c := &http.Client{Transport: &http.Transport{}, Timeout: patience}
	t.Cleanup(c.CloseIdleConnections)
	return s.URL, c
}

func request(t testing.TB, method, url string, body ...string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, bodyOf(body))
	require.NoError(t, err)
	return req
}
