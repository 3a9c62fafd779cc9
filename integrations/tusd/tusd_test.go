package tusd_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tus/tusd/v2/pkg/filestore"
	"github.com/tus/tusd/v2/pkg/handler"
	"golang.org/x/exp/slog"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/integrations/tusd"
	"github.com/go-locker/locker/internal/test/testwait"
	_ "github.com/go-locker/locker/memory"
)

// A client's connection to one server is dead, and the server does not know. The client resumes at
// another server, which asks the first one to let go.
func TestUpload_isResumedAtAnotherServer(t *testing.T) {
	t.Parallel()
	lock, dir := "mem://"+t.Name(), t.TempDir()
	first, second := serve(t, lock, dir, time.Minute), serve(t, lock, dir, time.Minute)
	id := create(t, first)
	ended := begin(t, first, dir, id)
	resume(t, second, dir, id)
	assert.NotEqual(t, http.StatusNoContent, <-ended, "the first request was ended")
	assertStored(t, dir, id)
}

// A server that loses the lock during an upload, as after a pause, ends the request.
func TestUpload_endsWithItsLock(t *testing.T) {
	t.Parallel()
	lock, dir := "mem://"+t.Name(), t.TempDir()
	first, second := serve(t, lock+"?ttl=3s&renew=false", dir, time.Minute), serve(t, lock, dir, time.Minute)
	id := create(t, first)
	ended := begin(t, first, dir, id)
	patience.Until(t, "the request is ended", func() bool { return len(ended) == 1 })
	assert.NotEqual(t, http.StatusNoContent, <-ended)
	resume(t, second, dir, id)
}

func TestLock_isWaitedForUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	lock, dir := "mem://"+t.Name(), t.TempDir()
	url := serve(t, lock, dir, 50*time.Millisecond)
	id := create(t, url)
	client := testwait.Closed(locker.Open(t.Context(), lock))(t)
	m := client.Mutex("tusd/" + id)
	require.NoError(t, m.Lock(t.Context()))
	response, err := do(t, http.MethodHead, url+id, nil, 0)
	require.NoError(t, err)
	assert.Equal(t, handler.ErrLockTimeout.HTTPResponse.StatusCode, response.StatusCode)
	require.NoError(t, m.Unlock(t.Context()))
	response, err = do(t, http.MethodHead, url+id, nil, 0)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, response.StatusCode)
}

func TestUnlock_saysThatThereIsNoHold(t *testing.T) {
	t.Parallel()
	client, err := locker.Open(t.Context(), "mem://"+t.Name())
	require.NoError(t, err)
	l, err := tusd.New(client).NewLock("x")
	require.NoError(t, err)
	require.ErrorIs(t, l.Unlock(), locker.ErrNotHeld)
	require.NoError(t, l.Lock(t.Context(), func() {}))
	require.NoError(t, client.Close())
	require.ErrorIs(t, l.Unlock(), locker.ErrLost)
}

const patience = testwait.Patience(time.Minute)

// serve starts a tusd server over HTTP, as a process of its own has it, and returns the URL of its
// uploads.
func serve(t testing.TB, lock, dir string, patience time.Duration) string {
	t.Helper()
	client := testwait.Closed(locker.Open(t.Context(), lock))(t)
	composer := handler.NewStoreComposer()
	filestore.New(dir).UseIn(composer)
	composer.UseLocker(tusd.New(client))
	h, err := handler.NewHandler(handler.Config{
		BasePath: "/files/", StoreComposer: composer, AcquireLockTimeout: patience,
		NetworkTimeout: time.Hour, // no request ends by itself
		Logger:         slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	require.NoError(t, err)
	server := httptest.NewServer(http.StripPrefix("/files/", h))
	t.Cleanup(server.Close)
	return server.URL + "/files/"
}

const content = "the first half, and the second"

var half = len(content) / 2

// create creates an upload, and returns its ID.
func create(t *testing.T, url string) (id string) {
	t.Helper()
	response, err := do(t, http.MethodPost, url, nil, 0)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, response.StatusCode)
	location := response.Header.Get("Location")
	return location[strings.LastIndex(location, "/")+1:]
}

// begin sends the first half of an upload, and keeps the request open. It returns when that half is
// in the store. The status of the response comes later: 0 if there is none.
func begin(t *testing.T, url, dir, id string) (status <-chan int) {
	t.Helper()
	r, w := io.Pipe()
	t.Cleanup(func() { _ = w.Close() })
	responded := make(chan int, 1)
	go func() {
		response, err := do(t, http.MethodPatch, url+id, r, 0)
		if err != nil {
			responded <- 0
			return
		}
		responded <- response.StatusCode
	}()
	_, err := io.WriteString(w, content[:half])
	require.NoError(t, err)
	patience.Until(t, "the first half is in the store", func() bool {
		stored, err := os.ReadFile(filepath.Join(dir, id))
		return err == nil && len(stored) == half
	})
	return responded
}

// resume asks how much of an upload is there, and sends the rest.
func resume(t *testing.T, url, dir, id string) {
	t.Helper()
	response, err := do(t, http.MethodHead, url+id, nil, 0)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Equal(t, strconv.Itoa(half), response.Header.Get("Upload-Offset"))
	response, err = do(t, http.MethodPatch, url+id, strings.NewReader(content[half:]), half)
	require.NoError(t, err)
	require.Equal(t, http.StatusNoContent, response.StatusCode)
	assertStored(t, dir, id)
}

func assertStored(t *testing.T, dir, id string) {
	t.Helper()
	stored, err := os.ReadFile(filepath.Join(dir, id))
	require.NoError(t, err)
	assert.Equal(t, content, string(stored))
}

// do sends a request of the protocol, which ends by its body or by the server.
func do(t *testing.T, method, url string, body io.Reader, offset int) (*http.Response, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, url, body)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Tus-Resumable", "1.0.0")
	switch method {
	case http.MethodPost:
		request.Header.Set("Upload-Length", strconv.Itoa(len(content)))
	case http.MethodPatch:
		request.Header.Set("Upload-Offset", strconv.Itoa(offset))
		request.Header.Set("Content-Type", "application/offset+octet-stream")
	}
	response, err := http.DefaultClient.Do(request)
	if err == nil {
		err = response.Body.Close()
	}
	return response, err
}
