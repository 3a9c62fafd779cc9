package httpfence_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/httpfence"
)

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
