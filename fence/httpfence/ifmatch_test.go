package httpfence_test

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

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

// holder writes an object in the two steps.
type holder struct {
	t      *testing.T
	client *http.Client
	url    string
	name   string
	marked *http.Response
}

func (h *holder) send(req *http.Request) *http.Response {
	h.t.Helper()
	resp, err := h.client.Do(req)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// marks puts the mark of token into the object.
func (h *holder) marks(token uint64) {
	h.t.Helper()
	mark, err := fence.Mark(h.name, token)
	require.NoError(h.t, err)
	h.marked = h.send(request(h.t, "PUT", h.url, "marked by "+mark))
}

// writes puts content where the mark still is, and what is there then is the mark for the next time.
func (h *holder) writes(content string) error {
	h.t.Helper()
	req := request(h.t, "PUT", h.url, content)
	require.NoError(h.t, httpfence.IfMatch(req, h.marked))
	resp := h.send(req)
	err := httpfence.Check(resp)
	if err == nil {
		h.marked = resp
	}
	return err
}

func contest(t *testing.T) (first, second *holder, content func() string) {
	t.Helper()
	s := newStore()
	url, client := serve(t, s)
	of := func() *holder { return &holder{t: t, client: client, url: url + "/orders/42", name: "orders/42"} }
	return of(), of(), func() string {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.content["/orders/42"]
	}
}

// What it gives: who is paused between mark and write overwrites nobody.
func TestIfMatch_refusesWhoWasPausedAfterItsMark(t *testing.T) {
	paused, next, content := contest(t)
	paused.marks(33)
	next.marks(34)
	require.ErrorIs(t, paused.writes("late"), fence.ErrMarkGone, "the next one has marked")
	require.NoError(t, next.writes("next"))
	err := paused.writes("late")
	require.ErrorIs(t, err, fence.ErrMarkGone, "and written")
	require.NotErrorIs(t, err, fence.ErrStale, "for it need not be")
	require.EqualError(t, err, `httpfence: "/orders/42": the resource no longer bears the mark`)
	assert.Equal(t, "next", content())
}

// What it does not give: a tag has no order. Who is paused before its mark shuts out the holder of the lock, and its write stands.
func TestIfMatch_letsInWhoWasPausedBeforeItsMark(t *testing.T) {
	paused, next, content := contest(t)
	next.marks(34)
	paused.marks(33) // wakes up here, its lock lost long ago
	require.ErrorIs(t, next.writes("next"), fence.ErrMarkGone, "the holder of the lock is the one refused")
	require.NoError(t, paused.writes("late"))
	assert.Equal(t, "late", content())
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
