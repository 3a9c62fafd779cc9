package httpfence_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

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
