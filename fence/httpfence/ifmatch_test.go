package httpfence_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/httpfence"
)

// store is an object store as many are: it compares entity tags, and knows nothing of locks.
type store struct {
	mu      sync.Mutex
	version int
	content map[string]string
	tags    map[string]string
}

func newStore() *store {
	return &store{content: map[string]string{}, tags: map[string]string{}}
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := r.URL.Path
	if want := r.Header.Get("If-Match"); want != "" && want != s.tags[key] {
		w.WriteHeader(http.StatusPreconditionFailed)
		return
	}
	if r.Method == http.MethodPut {
		body, _ := io.ReadAll(r.Body)
		s.version++
		s.content[key], s.tags[key] = string(body), fmt.Sprintf(`"v%d"`, s.version)
	}
	w.Header().Set("ETag", s.tags[key])
	_, _ = io.WriteString(w, s.content[key])
}

// A holder that is paused between its mark and its write overwrites nobody. But tags have no order:
// a former holder that is paused before its mark shuts out the present one, and its write stands.
func TestIfMatch_refusesWhoWasPausedAfterItsMark(t *testing.T) {
	url, client := serve(t, newStore())
	put := func(content string, marked *http.Response) (*http.Response, error) {
		req := request(t, "PUT", url+"/orders/42", content)
		if marked != nil {
			require.NoError(t, httpfence.IfMatch(req, marked))
		}
		resp, err := client.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp, httpfence.Check(resp)
	}
	paused, err := put("marked by 33", nil)
	require.NoError(t, err)
	next, err := put("marked by 34", nil)
	require.NoError(t, err)
	_, err = put("late", paused)
	require.ErrorIs(t, err, fence.ErrMarkGone, "the next one has marked")
	written, err := put("next", next)
	require.NoError(t, err)
	_, err = put("late", paused)
	require.ErrorIs(t, err, fence.ErrMarkGone, "and written")

	late, err := put("marked by 32", nil)
	require.NoError(t, err)
	_, err = put("next", written)
	require.ErrorIs(t, err, fence.ErrMarkGone, "the holder of the lock is the one refused")
	_, err = put("late", late)
	require.NoError(t, err)
}

func TestIfMatch_needsATagThatTellsStatesApart(t *testing.T) {
	for _, c := range []struct {
		status int
		tag    string
		err    string
	}{
		{200, `"v1"`, ""},
		{204, `""`, ""},
		{201, ``, "has no entity tag"},
		{200, `W/"v1"`, "is weak"},
		{200, `v1`, "has no entity tag"},
		{200, `"`, "has no entity tag"},
		{200, `*`, "has no entity tag"},
		{412, `"v1"`, "nothing was marked"},
		{304, `"v1"`, "nothing was marked"},
		{500, `"v1"`, "nothing was marked"},
	} {
		marked := &http.Response{StatusCode: c.status, Status: http.StatusText(c.status), Header: http.Header{"Etag": {c.tag}}}
		write := request(t, "PUT", "http://x/", "new")
		err := httpfence.IfMatch(write, marked)
		if c.err == "" {
			require.NoError(t, err, c)
			assert.Equal(t, c.tag, write.Header.Get("If-Match"))
			continue
		}
		require.ErrorContains(t, err, c.err)
		assert.NotContains(t, write.Header, "If-Match")
	}
}

// answer is one that a server might give.
func answer(status int, media string, body io.Reader) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {media}}, Body: io.NopCloser(body)}
}

const staleBody = `{"type":"https://github.com/go-locker/locker/tree/main/fence/httpfence#stale-token","token":"33","newest":"34"}`

func TestCheck_takesNothingElseForARefusal(t *testing.T) {
	for what, resp := range map[string]*http.Response{
		"no 412":             answer(409, "application/problem+json", strings.NewReader(staleBody)),
		"no problem":         answer(412, "application/json", strings.NewReader(staleBody)),
		"no media type":      answer(412, "", strings.NewReader(staleBody)),
		"another's problem":  answer(412, "application/problem+json", strings.NewReader(`{"type":"https://example.com/etag"}`)),
		"no JSON":            answer(412, "application/problem+json", strings.NewReader(staleBody[:20])),
		"no object":          answer(412, "application/problem+json", strings.NewReader(`[1]`)),
		"tokens not strings": answer(412, "application/problem+json", strings.NewReader(strings.ReplaceAll(staleBody, `"33"`, `33`))),
		"endless":            answer(412, "application/problem+json", io.LimitReader(endless{}, 1<<20)),
		"empty":              answer(412, "application/problem+json", strings.NewReader("")),
		"any other failure":  answer(503, "application/problem+json", strings.NewReader(`{"type":"about:blank"}`)),
		"a failure's type":   answer(503, "application/problem+json", strings.NewReader(staleBody)),
	} {
		require.NoError(t, httpfence.Check(resp), what)
	}
	long := &io.LimitedReader{R: endless{}, N: 1 << 20}
	resp := answer(412, "application/problem+json", long)
	require.NoError(t, httpfence.Check(resp))
	assert.Greater(t, long.N, int64(1<<19), "no problem is that long")
	n, err := io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	assert.EqualValues(t, 1<<20, n, "the body can still be read, whole")
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestCheck_knowsARefusalByItsParts(t *testing.T) {
	err := httpfence.Check(answer(412, "application/problem+json; charset=utf-8", strings.NewReader(staleBody)))
	var stale *fence.StaleError
	require.ErrorAs(t, err, &stale)
	assert.Equal(t, fence.StaleError{Token: 33, Newest: 34}, *stale, "without the request there is no path")
}

func TestCheck_saysThatTheBodyBrokeOff(t *testing.T) {
	torn := errors.New("connection reset")
	body := io.MultiReader(strings.NewReader(staleBody[:20]), iotest.ErrReader(torn))
	err := httpfence.Check(answer(412, "application/problem+json", body))
	require.ErrorIs(t, err, torn)
	require.NotErrorIs(t, err, fence.ErrStale)
}
