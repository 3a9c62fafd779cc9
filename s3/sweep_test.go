package s3_test

import (
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/s3"
)

// A sweep deletes the objects of locks that nobody has used for a day, and no others.
func TestSweep(t *testing.T) {
	r := relayTo(t, versitygw(t))
	s := testserver.SharedS3(t)
	folder := "sweep"
	d := s3.NewDriver(r.client(t), "bucket", folder).(*s3.Driver)
	defer func() { _ = d.Close() }()
	file := func(name string) string { return s.File(folder + "/" + name + ".lock") }
	yesterday := time.Now().Add(-25 * time.Hour)
	for _, name := range []string{"old", "new", "crashed"} {
		require.NoError(t, take(t, d, name).Release(t.Context()))
	}
	take(t, d, "crashed")
	require.NoError(t, os.WriteFile(file("foreign"), []byte("a report"), 0o600))
	for _, name := range []string{"old", "crashed", "foreign"} {
		require.NoError(t, os.Chtimes(file(name), yesterday, yesterday))
	}
	require.NoError(t, d.Sweep(t.Context()))
	for name, stays := range map[string]bool{"old": false, "crashed": false, "new": true, "foreign": true} {
		_, err := os.Stat(file(name))
		assert.Equal(t, stays, err == nil, name)
	}
	take(t, d, "crashed")
}

// An object that is taken while it is swept is not deleted.
func TestSweep_ofAnObjectThatIsTakenMeanwhile(t *testing.T) {
	f := newFake()
	r := relayTo(t, f)
	d := r.driver(t)
	require.NoError(t, take(t, d, "name").Release(t.Context()))
	f.forward(25 * time.Hour)
	r.answer(func(w http.ResponseWriter, request *http.Request) {
		if request.Method == http.MethodDelete {
			r.answer(nil)
			take(t, d, "name")
		}
		r.store.ServeHTTP(w, request)
	})
	require.NoError(t, d.Sweep(t.Context()))
	held(t, d, "name")
}

// A store that ignores the condition of a DELETE is not swept.
func TestSweep_ofAStoreThatDeletesWhateverItIsTold(t *testing.T) {
	f := newFake()
	r := relayTo(t, f)
	r.answer(func(w http.ResponseWriter, request *http.Request) {
		if request.Method == http.MethodDelete {
			request.Header.Del("If-Match")
		}
		r.store.ServeHTTP(w, request)
	})
	d := r.driver(t)
	require.NoError(t, take(t, d, "name").Release(t.Context()))
	assert.Len(t, f.keys(), 1, "the object of the self-test is gone")
	f.forward(25 * time.Hour)
	require.NoError(t, d.Sweep(t.Context()))
	assert.Len(t, f.keys(), 1)
}
