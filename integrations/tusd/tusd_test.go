package tusd_test

import (
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tus/tusd/v2/pkg/handler"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/integrations/tusd"
	"github.com/go-locker/locker/internal/test/testwait"
)

// A client's connection to one server is dead, and the server does not know. The client resumes at
// another server, which asks the first one to let go.
func TestUpload_isResumedAtAnotherServer(t *testing.T) {
	t.Parallel()
	locks := map[string]func(t testing.TB) string{"memory": func(testing.TB) string { return "mem://" + space() + "?" }}
	maps.Copy(locks, servers)
	for name, url := range locks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lock, dir := url(t)+"ttl=20s&prefix="+space(), t.TempDir()
			first, second := serve(t, lock, dir, time.Minute), serve(t, lock, dir, time.Minute)
			id := create(t, first)
			ended := begin(t, first, dir, id)
			resume(t, second, dir, id)
			assert.NotEqual(t, http.StatusNoContent, <-ended, "the first request was ended")
			assertStored(t, dir, id)
		})
	}
}

func TestLock_isWaitedForUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	lock, dir := "mem://"+space(), t.TempDir()
	url := serve(t, lock, dir, 50*time.Millisecond)
	id := create(t, url)
	client, err := locker.Open(t.Context(), lock)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	m := client.Mutex("tusd/" + id)
	require.NoError(t, m.Lock(t.Context()))
	response := do(t, http.MethodHead, url+id, nil, nil)
	assert.Equal(t, handler.ErrLockTimeout.HTTPResponse.StatusCode, response.StatusCode)
	require.NoError(t, m.Unlock(t.Context()))
	response = do(t, http.MethodHead, url+id, nil, nil)
	assert.Equal(t, http.StatusOK, response.StatusCode)
}

func TestLock_asksItsHolderToLetGo(t *testing.T) {
	t.Parallel()
	client, err := locker.Open(t.Context(), "mem://"+space())
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	asked := make(chan struct{}, 2)
	ask := func() { asked <- struct{}{} }
	var locks []handler.Lock
	for range 2 {
		l, err := tusd.New(client).NewLock("x")
		require.NoError(t, err)
		locks = append(locks, l)
	}
	require.ErrorIs(t, locks[0].Unlock(), locker.ErrNotHeld)
	require.NoError(t, locks[0].Lock(t.Context(), ask))
	locked := testwait.Go(func() error { return locks[1].Lock(t.Context(), ask) })
	<-asked
	require.NoError(t, locks[0].Unlock())
	require.NoError(t, patience.Result(t, locked))

	require.NoError(t, client.Close())
	<-asked // it is lost
	require.ErrorIs(t, locks[1].Unlock(), locker.ErrLost)
}
