package httpfence_test

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/filefence"
	"github.com/go-locker/locker/fence/httpfence"
)

// The token of a file that was deleted, here: the client hears of it as whoever writes the file does.
func TestCheck_saysThatWhatTheResourceHasSeenIsNotKnown(t *testing.T) {
	dir := t.TempDir()
	h := httpfence.Handler(created, filefence.Dir(dir), nil)
	assert.Equal(t, http.StatusCreated, put(t, h, "/orders/42", "34").Code)
	tokens, err := filepath.Glob(filepath.Join(dir, "*.fence"))
	require.NoError(t, err)
	require.Len(t, tokens, 1)
	require.NoError(t, os.Remove(tokens[0]))
	url, client, log := logged(t, h)
	req := request(t, "PUT", url+"/orders/42", "new")
	req.Header.Set("Fencing-Token", "35")
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	err = httpfence.Check(resp)
	require.ErrorIs(t, err, fence.ErrUnknown)
	require.NotErrorIs(t, err, fence.ErrStale)
	require.ErrorContains(t, err, `"/orders/42"`)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Contains(t, string(body), `"title":"Which fencing tokens were seen is not known"`, "the body can still be read")
	assert.NotContains(t, string(body), dir, "where the token is kept is the server's affair")
	assert.Contains(t, log(), tokens[0], "which its log has")

	require.NoError(t, httpfence.Check(answer(503, "application/problem+json", strings.NewReader(`{"type":"about:blank"}`))), "any other failure")
	require.NoError(t, httpfence.Check(answer(503, "application/problem+json", strings.NewReader(staleBody))), "nor is that a refusal")
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
