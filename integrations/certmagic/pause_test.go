//go:build unix

package certmagic_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	locks "github.com/go-locker/locker/integrations/certmagic"
	"github.com/go-locker/locker/internal/test/child"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

const (
	envURL   = "CERTMAGIC_LOCKS"
	envDir   = "CERTMAGIC_DIR"
	envNaive = "CERTMAGIC_NAIVE"
)

// others is how many certificates other processes may issue: serial numbers of the child are larger.
const others = 100

func init() { child.Register("obtainer", obtain) }

// obtain is what the child does: it obtains the certificate in the background. Whenever certmagic renews the lease, and whenever it
// issues, it says so, and goes on when it is told how.
func obtain(t testing.TB) {
	told := bufio.NewScanner(os.Stdin)
	ask := func(what string) string {
		fmt.Println(what)
		told.Scan()
		return told.Text()
	}
	c, err := locker.Open(t.Context(), os.Getenv(envURL))
	require.NoError(t, err)
	s := locks.New(newFiles(os.Getenv(envDir)), c)
	var storage certmagic.Storage = asking{s, s, ask}
	if os.Getenv(envNaive) != "" {
		storage = asking{s, naive{s}, ask}
	}
	a := &authority{issued: others}
	cfg := config(t, storage, issuer{authority: a, meet: func(context.Context) error {
		if why := ask("issues"); why != "" {
			return errors.New(why)
		}
		return nil
	}})
	require.NoError(t, cfg.ObtainCertAsync(t.Context(), domain))
	fmt.Println("done", a.issued-others)
}

// naive has no word for a loss.
type naive struct{ *locks.Storage }

func (naive) RenewLockLease(context.Context, string, time.Duration) error { return nil }

// asking asks before it renews the lease.
type asking struct {
	certmagic.Storage
	certmagic.LockLeaseRenewer

	ask func(string) string
}

func (s asking) RenewLockLease(ctx context.Context, name string, d time.Duration) error {
	s.ask("renews")
	return s.LockLeaseRenewer.RenewLockLease(ctx, name, d)
}

// pair is a child that obtains a certificate, and this process, which obtains the same one.
type pair struct {
	*child.Process

	storage files
	obtain  func() error
}

func newPair(t *testing.T, meet func(context.Context) error, env ...string) pair {
	t.Helper()
	p := pair{storage: newFiles(t.TempDir())}
	url := testserver.SharedRedis(t).URL()
	cfg := config(t, locks.New(p.storage, open(t, url)), issuer{authority: &authority{}, meet: meet})
	p.obtain = func() error { return cfg.ObtainCertSync(testwait.Context(t, time.Duration(patience)), domain) }
	lock := fmt.Sprintf("%s?prefix=%s&ttl=3s", url, t.Name())
	p.Process = child.Start(t, "obtainer", append(env, envURL+"="+lock, envDir+"="+p.storage.Path)...)
	return p
}

// paused stops the child before its second attempt, while this process takes the lock. The child goes on when this process issues, which
// ends when finish is called.
func paused(t *testing.T, env ...string) (p pair, finish func()) {
	t.Helper()
	inside, end := make(chan struct{}), make(chan struct{})
	p = newPair(t, func(context.Context) error { close(inside); <-end; return nil }, env...)
	p.Says("renews")
	p.Tell("")
	p.Says("issues")
	p.Tell("too many requests")
	p.Says("renews")
	p.Stop()
	done := testwait.Go(p.obtain)
	await(t, inside, done)
	p.Continue()
	p.Tell("")
	return p, func() {
		close(end)
		require.NoError(t, patience.Result(t, done))
	}
}

func TestPause_betweenTwoAttemptsIssuesOnce(t *testing.T) {
	t.Parallel()
	p, finish := paused(t)
	time.Sleep(300 * time.Millisecond) // for the child to wait: no promise needs that
	finish()
	assert.Equal(t, []string{"0"}, p.Says("done"), "it found the certificate of the other")
	assert.EqualValues(t, 1, stored(t, p.storage))
}

func TestPause_betweenTwoAttemptsIssuesTwiceWithTheNaiveAdapter(t *testing.T) {
	t.Parallel()
	p, finish := paused(t, envNaive+"=yes")
	p.Says("issues")
	p.Tell("")
	assert.Equal(t, []string{"1"}, p.Says("done"), "while the other is issuing")
	finish()
}

// What no adapter prevents: the authority has been asked, and certmagic stores what it gets.
func TestPause_whileIssuingIssuesTwice(t *testing.T) {
	t.Parallel()
	p := newPair(t, nil)
	p.Says("renews")
	p.Tell("")
	p.Says("issues")
	p.Stop()
	require.NoError(t, p.obtain(), "the lock of a process that stands still expires")
	require.EqualValues(t, 1, stored(t, p.storage))
	p.Continue()
	p.Tell("")
	assert.Equal(t, []string{"1"}, p.Says("done"))
	assert.EqualValues(t, others+1, stored(t, p.storage), "the late one replaces the other's, with its key")
}
