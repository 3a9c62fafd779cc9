package certmagic_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/child"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	_ "github.com/go-locker/locker/memory"
	_ "github.com/go-locker/locker/redis"
)

const patience = testwait.Patience(time.Minute)

// long is the TTL of holds that are not to end by themselves, on a busy machine.
const long = 20 * time.Second

func TestMain(m *testing.M) {
	child.Serve()
	goleak.VerifyTestMain(testserver.Tests(m))
}

// memory returns the URL of locks that no other test has.
func memory(t *testing.T) string { return "mem://" + t.Name() }

// open returns a Client as a process of its own has it, under a prefix of the test.
func open(t *testing.T, url string, opts ...locker.Option) *locker.Client {
	t.Helper()
	c, err := locker.Open(t.Context(), url, append([]locker.Option{locker.WithTTL(long), locker.WithPrefix(t.Name())}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// await returns when what comes before the end of an operation has come.
func await(t *testing.T, what <-chan struct{}, done <-chan error) {
	t.Helper()
	select {
	case <-what:
	case err := <-done:
		require.FailNow(t, "it has ended too early", "%v", err)
	}
}
