package direct_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/direct"
)

func TestClient_followsNoRedirect(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		var asked []string
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.Method+" "+r.URL.Path)
			if r.URL.Path == "/" {
				http.Redirect(w, r, "/elsewhere", status)
			}
		}))
		c := s.Client()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL, strings.NewReader("text"))
		require.NoError(t, err)
		answer, err := direct.Client(c).Do(request)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		assert.Equal(t, status, answer.StatusCode)
		assert.Equal(t, []string{"PUT /"}, asked)
		assert.Nil(t, c.CheckRedirect, "the caller's own client is as it was")
		s.Close()
	}
}

// wrapped is a transport such as those of client-go.
type wrapped struct{ http.RoundTripper }

func (w wrapped) WrappedRoundTripper() http.RoundTripper { return w.RoundTripper }

// Idle connections may have fallen silent together: only one request finds that out.
func TestClient_leavesIdleConnectionsAfterARequestWithoutAnAnswer(t *testing.T) {
	var silent sync.Map // by the client's address
	var conns atomic.Int64
	together := make(chan struct{}, 5)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, is := silent.LoadOrStore(r.RemoteAddr, true); is {
			<-r.Context().Done()
			return
		}
		together <- struct{}{}
		for len(together) < cap(together) && r.URL.Path == "/together" {
			time.Sleep(time.Millisecond)
		}
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	transport := &http.Transport{MaxIdleConnsPerHost: cap(together)}
	t.Cleanup(transport.CloseIdleConnections)
	c := direct.Client(&http.Client{Transport: wrapped{transport}})
	ask := func(path string, limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, http.NoBody)
		require.NoError(t, err)
		answer, err := c.Do(request)
		if err == nil {
			err = answer.Body.Close()
		}
		return err
	}
	var asking sync.WaitGroup
	for range cap(together) {
		asking.Go(func() { assert.NoError(t, ask("/together", time.Minute)) })
	}
	asking.Wait()
	require.EqualValues(t, cap(together), conns.Load())
	require.ErrorIs(t, ask("/", 50*time.Millisecond), context.DeadlineExceeded)
	<-together
	require.NoError(t, ask("/", time.Minute), "the others are left")
}
