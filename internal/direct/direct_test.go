package direct_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

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
