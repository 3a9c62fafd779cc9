package httpfence_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/filefence"
	"github.com/go-locker/locker/fence/httpfence"
	"github.com/go-locker/locker/internal/test/fencecheck"
)

// put is a request to h by the holder of token, and the answer.
func put(t *testing.T, h http.Handler, path string, token ...string) *httptest.ResponseRecorder {
	t.Helper()
	return do(h, httptest.NewRequestWithContext(t.Context(), "PUT", path, nil), token...)
}

func do(h http.Handler, r *http.Request, token ...string) *httptest.ResponseRecorder {
	for _, v := range token {
		r.Header.Add("Fencing-Token", v)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

var created = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })

func never(t *testing.T) http.Handler {
	return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("what was refused is written") })
}

// Transport, Handler and Check, from end to end.
func TestHandler_keepsTheRule(t *testing.T) {
	fencecheck.Run(t, func(t testing.TB) fencecheck.Fence {
		dir := t.TempDir()
		var mu sync.Mutex // the race detector knows nothing of the guard
		var history []uint64
		url, _ := serve(t, httpfence.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			token, _ := strconv.ParseUint(r.Header.Get("Fencing-Token"), 10, 64)
			history = append(history, token)
		}), filefence.Dir(dir), nil))
		client := &http.Client{Transport: httpfence.NewTransport(nil, token(1<<64-1)), Timeout: patience} // of the hold now
		t.Cleanup(client.CloseIdleConnections)
		return fencecheck.Fence{
			Write: func(ctx context.Context, token uint64) error {
				resp, err := client.Do(request(t, "PUT", url+"/orders/42", "new").WithContext(httpfence.WithToken(ctx, token)))
				if err != nil {
					return err
				}
				defer resp.Body.Close()
				return httpfence.Check(resp)
			},
			History: func(context.Context) ([]uint64, error) { return history, nil },
			Spoil: func(_ context.Context, text string) error {
				tokens, _ := filepath.Glob(filepath.Join(dir, "*.fence"))
				return os.WriteFile(tokens[0], []byte(text+"\n"), 0o600)
			},
		}
	})
}

func TestHandler_refusesAndSaysWhy(t *testing.T) {
	var guard fence.Memory
	require.Equal(t, http.StatusCreated, put(t, httpfence.Handler(created, &guard, nil), "/orders/42", "34").Code)
	const base = `"type":"https://github.com/go-locker/locker/tree/main/fence/httpfence#`
	for _, c := range []struct {
		token  []string
		status int
		body   string
	}{
		{nil, 428, `{` + base + `missing-token","title":"A fencing token is required","status":428,` +
			`"detail":"a write needs the header field Fencing-Token, with the token of the lock's holder"}`},
		{[]string{"33"}, 412, `{` + base + `stale-token","title":"The fencing token is stale","status":412,` +
			`"detail":"the token is 33, and the holder of 34 has written","token":"33","newest":"34"}`},
		{[]string{"0"}, 412, `{` + base + `stale-token","title":"The fencing token is stale","status":412,` +
			`"detail":"0 is the token of nobody: the lock is not held"}`},
		{[]string{"x"}, 400, `{` + base + `malformed-token","title":"The fencing token is malformed","status":400,` +
			`"detail":"a request needs one header field Fencing-Token, of decimal digits, below 2^64"}`},
	} {
		w := put(t, httpfence.Handler(never(t), &guard, nil), "/orders/42", c.token...)
		assert.Equal(t, c.status, w.Code, c.token)
		assert.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
		assert.Equal(t, c.body, w.Body.String())
		leadsToThePage(t, c.body, c.status)
	}
	for _, token := range []string{"", " ", "-1", "+35", "35 36", "35, 36", "1e3", "0x23", "18446744073709551616", "３５", "35\x00"} {
		assert.Equal(t, http.StatusBadRequest, put(t, httpfence.Handler(never(t), &guard, nil), "/orders/42", token).Code, "%q", token)
	}
	assert.Equal(t, http.StatusBadRequest, put(t, httpfence.Handler(never(t), &guard, nil), "/orders/42", "35", "35").Code, "twice")
}

// leadsToThePage fails unless the type of a problem is the address of its section.
func leadsToThePage(t *testing.T, body string, status int) {
	t.Helper()
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	anchor, _, _ := strings.Cut(strings.TrimPrefix(body, `{"type":"https://github.com/go-locker/locker/tree/main/fence/httpfence#`), `"`)
	assert.Contains(t, string(page), fmt.Sprintf("\n## %s\n\n**%d.** ", anchor, status))
}

func TestHandler_asksForTheTokenOfWhateverMayWrite(t *testing.T) {
	var guard fence.Memory
	h := httpfence.Handler(created, &guard, nil)
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "TRACE"} {
		assert.Equal(t, http.StatusCreated, do(h, httptest.NewRequestWithContext(t.Context(), method, "/orders/42", nil)).Code, method)
	}
	for _, method := range []string{"POST", "PATCH", "DELETE", "CONNECT", "PURGE", "get"} {
		assert.Equal(t, http.StatusPreconditionRequired, do(h, httptest.NewRequestWithContext(t.Context(), method, "/orders/42", nil)).Code, method)
	}
}

func TestHandler_asksWhichResourceARequestWrites(t *testing.T) {
	var guard fence.Memory
	mux := http.NewServeMux()
	mux.Handle("PUT /orders/{id}/{part...}", httpfence.Handler(created, &guard, func(r *http.Request) string { return "orders/" + r.PathValue("id") }))
	assert.Equal(t, http.StatusCreated, put(t, mux, "/orders/42/lines", "34").Code)
	assert.Equal(t, http.StatusPreconditionFailed, put(t, mux, "/orders/42/address?x=y", "33").Code)
	assert.Equal(t, http.StatusCreated, put(t, mux, "/orders/43/lines", "33").Code)
	require.ErrorIs(t, guard.Write(t.Context(), "orders/42", 33, nil), fence.ErrStale)

	h := httpfence.Handler(created, &guard, nil)
	assert.Equal(t, http.StatusCreated, put(t, h, "/a%20b?x=y", "34").Code)
	assert.Equal(t, http.StatusPreconditionFailed, put(t, h, "/a%20%62", "33").Code, "the same path, spelt otherwise")
}

// net/http's own ServeMux redirects such paths; a Handler may be used without it.
func TestHandler_hasOneMemoryOfAPathHoweverItIsSpelt(t *testing.T) {
	for _, spelt := range []string{
		"/a/b", "/a/./b", "//a/b", "/a//b", "/a/../a/b", "/../a/b", "/a/b/.", "/a/b/", "/a/b//", "/a/b/c/..",
		"/a/%2e/b", "/a/%2E%2e/a/b", "/a%2Fb", "/%61/b", "/a/b?x=y", "http://other.example/a/b",
	} {
		for _, paths := range [][2]string{{"/a/b", spelt}, {spelt, "/a/b"}} {
			var guard fence.Memory
			var got string
			h := httpfence.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.RequestURI }), &guard, nil)
			require.Equal(t, http.StatusOK, put(t, h, paths[0], "34").Code, paths[0])
			assert.Equal(t, paths[0], got, "next has the URL as it was sent")
			w := put(t, httpfence.Handler(never(t), &guard, nil), paths[1], "33")
			assert.Equal(t, http.StatusPreconditionFailed, w.Code, "%s after %s", paths[1], paths[0])
		}
	}
	var guard fence.Memory
	h := httpfence.Handler(created, &guard, nil)
	for i, other := range []string{"/", "/a", "/a/b", "/a/b/c", "/A/b", "/a/...", "/a/.b"} {
		assert.Equal(t, http.StatusCreated, put(t, h, other, strconv.Itoa(34-i)).Code, "%s is another resource", other)
	}
}

func TestHandler_handsOnTheRequestItself(t *testing.T) {
	var guard fence.Memory
	r := httptest.NewRequestWithContext(t.Context(), "PUT", "/", nil)
	do(httpfence.Handler(http.HandlerFunc(func(_ http.ResponseWriter, got *http.Request) { assert.Same(t, r, got) }), &guard, nil), r, "1")
}

// What overtakes in the middle would be written over.
func TestHandler_aLargerTokenWaitsForTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var guard fence.Memory
		var written []string
		goOn := make(chan struct{})
		h := httpfence.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-goOn
			written = append(written, r.Header.Get("Fencing-Token"))
		}), &guard, nil)
		var all sync.WaitGroup
		// The first one's client goes at once, which is no reason to let another in while its handler goes on.
		ctx, cancel := context.WithCancel(t.Context())
		all.Go(func() { do(h, httptest.NewRequestWithContext(ctx, "PUT", "/", nil), "33") })
		synctest.Wait()
		cancel()
		all.Go(func() { put(t, h, "/", "34") })
		synctest.Wait()
		gone, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w := do(h, httptest.NewRequestWithContext(gone, "PUT", "/", nil), "35")
		assert.Equal(t, http.StatusServiceUnavailable, w.Code, "who has waited for as long as it cares to")
		assert.Empty(t, written)
		close(goOn)
		all.Wait()
		assert.Equal(t, []string{"33", "34"}, written)
	})
}
