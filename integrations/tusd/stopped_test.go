//go:build unix

package tusd_test

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-locker/locker/internal/test/child"
)

// What a process that serves uploads is told in its environment.
const (
	envLock = "LOCKER_TUSD_LOCK"
	envDir  = "LOCKER_TUSD_DIR"
)

func init() { child.Register("tusd", serveUploads) }

// serveUploads is a process that serves uploads until it is told to end.
func serveUploads(t testing.TB) {
	fmt.Println("serves", serve(t, os.Getenv(envLock), os.Getenv(envDir), time.Minute))
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	os.Exit(0) // what it still serves does not end by itself
}

// A server is stopped for longer than its TTL, in the midst of an upload. The client resumes at
// another server. When the first one wakes, it ends its request, and appends nothing.
func TestStopped_theUploadIsResumedAtAnotherServer(t *testing.T) {
	t.Parallel()
	for name, url := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lock, dir := url(t)+"prefix="+space(), t.TempDir()
			p := child.Start(t, "tusd", envLock+"="+lock+"&ttl=6s", envDir+"="+dir)
			first := p.Says("serves")[0]
			second := serve(t, lock, dir, time.Minute)
			id := create(t, first)
			ended := begin(t, first, dir, id)
			p.Stop()
			resume(t, second, dir, id)
			p.Continue()
			assert.NotEqual(t, http.StatusNoContent, <-ended)
			assertStored(t, dir, id)
			p.Tell("end")
		})
	}
}
