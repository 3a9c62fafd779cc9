package certmagic_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	_ "unsafe" // for linkname

	"github.com/caddyserver/certmagic"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/go-locker/locker"
	locks "github.com/go-locker/locker/integrations/certmagic"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	_ "github.com/go-locker/locker/memory"
	_ "github.com/go-locker/locker/redis"
)

func TestConfigs_obtainAndRenewACertificateOnce(t *testing.T) {
	t.Parallel()
	a, storage, ctx := &authority{}, newFiles(t.TempDir()), t.Context()
	var inForce, expiring []*certmagic.Config
	meet := func(context.Context) error { time.Sleep(50 * time.Millisecond); return nil }
	for range 2 {
		s := locks.New(storage, open(t, memory(t)))
		expiring = append(expiring, config(t, s, issuer{authority: a, meet: meet, valid: time.Hour}))
		inForce = append(inForce, config(t, s, issuer{authority: a, meet: meet}))
	}
	together := func(configs []*certmagic.Config, calls ...func(*certmagic.Config) error) {
		t.Helper()
		var all sync.WaitGroup
		for _, cfg := range configs {
			for _, call := range calls {
				all.Go(func() { assert.NoError(t, call(cfg)) })
			}
		}
		all.Wait()
	}
	together(expiring,
		func(c *certmagic.Config) error { return c.ObtainCertAsync(ctx, domain) },
		func(c *certmagic.Config) error { return c.ObtainCertSync(ctx, domain) })
	require.EqualValues(t, 1, stored(t, storage))
	together(inForce,
		func(c *certmagic.Config) error { return c.RenewCertAsync(ctx, domain, false) },
		func(c *certmagic.Config) error { return c.RenewCertSync(ctx, domain, false) })
	require.EqualValues(t, 2, stored(t, storage), "the first was to be renewed")
	assert.EqualValues(t, 2, a.issued.Load())
	assert.False(t, a.atOnce.Load())
}

// failsFirst has the first attempt of an issuer fail, after something has happened.
func failsFirst(attempts *atomic.Int32, happens func()) func(context.Context) error {
	return func(context.Context) error {
		if attempts.Add(1) > 1 {
			return nil
		}
		happens()
		return errors.New("too many requests")
	}
}

// A process stands still for longer than its TTL, before its second attempt, and goes on while
// another, which has taken the lock, issues.
func TestRenewLockLease_afterALossIssuesOnce(t *testing.T) {
	t.Parallel()
	storage, there := newFiles(t.TempDir()), &authority{}
	inside, end := make(chan struct{}), make(chan struct{})
	other := config(t, locks.New(storage, open(t, memory(t))), issuer{authority: there, meet: func(context.Context) error {
		close(inside)
		<-end
		return nil
	}})
	var obtained <-chan error
	var attempts atomic.Int32
	paused := locks.New(storage, open(t, memory(t), locker.WithTTL(time.Second), locker.WithoutRenewal()))
	cfg := config(t, paused, issuer{authority: &authority{}, meet: failsFirst(&attempts, func() {
		obtained = testwait.Go(func() error { return other.ObtainCertSync(t.Context(), domain) })
		<-inside
		time.AfterFunc(100*time.Millisecond, func() { close(end) }) // for it to wait: no promise needs that
	})})
	require.NoError(t, cfg.ObtainCertAsync(testwait.Context(t, time.Duration(patience)), domain))
	require.NoError(t, patience.Result(t, obtained))
	assert.EqualValues(t, 1, attempts.Load(), "it found the certificate of the other")
	assert.EqualValues(t, 1, there.issued.Load())
}

// A process is paused while it issues, and another takes the lock and issues, too. No lock prevents
// that: the authority has been asked, and certmagic stores what it gets.
func TestObtain_aLossWhileIssuingIssuesTwice(t *testing.T) {
	t.Parallel()
	storage, a := newFiles(t.TempDir()), &authority{}
	other := config(t, locks.New(storage, open(t, memory(t))), issuer{authority: a})
	paused := locks.New(storage, open(t, memory(t), locker.WithTTL(time.Second), locker.WithoutRenewal()))
	cfg := config(t, paused, issuer{authority: a, meet: func(ctx context.Context) error { return other.ObtainCertSync(ctx, domain) }})
	require.NoError(t, cfg.ObtainCertAsync(t.Context(), domain))
	assert.EqualValues(t, 2, a.issued.Load())
	assert.EqualValues(t, 2, stored(t, storage), "the late one replaces the other's, with its key")
}

// An authority that is asked while nobody knows whether the lock is held may be asked twice.
func TestRenewLockLease_isAnErrorWhileTheServerIsSilent(t *testing.T) {
	t.Parallel()
	server, a := testserver.Redis(t), &authority{}
	logged, records := observer.New(zap.ErrorLevel)
	var attempts atomic.Int32
	cfg := config(t, locks.New(newFiles(t.TempDir()), open(t, server.URL(), locker.WithTTL(4*time.Second))),
		issuer{authority: a, meet: failsFirst(&attempts, server.Stop)})
	cfg.Logger = zap.New(logged)
	t.Cleanup(server.Continue)
	done := testwait.Go(func() error { return cfg.ObtainCertAsync(testwait.Context(t, time.Duration(patience)), domain) })
	patience.Until(t, "the second attempt ends, or issues", func() bool {
		return records.FilterMessage("will retry").Len() == 2 || attempts.Load() == 2
	})
	require.EqualValues(t, 1, attempts.Load(), "it does not issue after an error")
	server.Continue()
	require.NoError(t, patience.Result(t, done))
	assert.EqualValues(t, 1, a.issued.Load())
}

func TestUnlock_withAnEndedContextReleases(t *testing.T) {
	t.Parallel()
	storage, ctx := newFiles(t.TempDir()), t.Context()
	here, there := locks.New(storage, open(t, memory(t))), locks.New(storage, open(t, memory(t)))
	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.NoError(t, here.Lock(ctx, lockName))
	require.False(t, tryLock(t, there))
	require.NoError(t, here.Unlock(ended, lockName))
	require.True(t, tryLock(t, there), "it has been released when Unlock returns")
	require.NoError(t, there.Unlock(ctx, lockName))
	require.ErrorIs(t, here.Lock(ended, lockName), context.Canceled)
	ok, err := here.(certmagic.TryLocker).TryLock(ended, lockName)
	require.ErrorIs(t, err, context.Canceled)
	assert.False(t, ok)

	stopped, stop := context.WithCancel(ctx)
	cfg := config(t, here, issuer{authority: &authority{}, meet: func(ctx context.Context) error { stop(); return ctx.Err() }})
	require.ErrorIs(t, cfg.ObtainCertAsync(stopped, domain), context.Canceled)
	assert.True(t, tryLock(t, there), "an operation whose context ends leaves no lock")
}

func tryLock(t *testing.T, s certmagic.Storage) bool {
	t.Helper()
	ok, err := s.(certmagic.TryLocker).TryLock(t.Context(), lockName)
	require.NoError(t, err)
	return ok
}

// certmagic keeps what Unlock returns an error for, and asks again before the process exits.
func TestUnlock_tellsOfALossOnce(t *testing.T) { //nolint:paralleltest // CleanUpOwnLocks ends the locks of all tests
	const ttl = time.Second
	c := open(t, memory(t), locker.WithTTL(ttl), locker.WithoutRenewal())
	logged, records := observer.New(zap.ErrorLevel)
	cfg := config(t, locks.New(newFiles(t.TempDir()), c), issuer{authority: &authority{}, meet: func(context.Context) error {
		time.Sleep(ttl)
		return nil
	}})
	cfg.Logger = zap.New(logged)
	require.NoError(t, cfg.ObtainCertSync(t.Context(), domain))
	require.Equal(t, 1, records.Len())
	assert.Equal(t, "unable to unlock", records.All()[0].Message)
	require.ErrorContains(t, records.All()[0].Context[2].Interface.(error), locker.ErrLost.Error())
	certmagic.CleanUpOwnLocks(t.Context(), nil) // which panics after an error
}

// secretive is a storage of which a log must not show more than it says itself.
type secretive struct {
	certmagic.FileStorage

	Password string
}

func (s *secretive) String() string { return "secretive" }

func TestString_isThatOfTheOtherStorage(t *testing.T) {
	other := &secretive{Password: "hunter2"}
	s := locks.New(other, nil)
	assert.Equal(t, "secretive", fmt.Sprint(s))
	type unnamed struct{ certmagic.Storage }
	assert.Equal(t, "certmagic_test.unnamed", fmt.Sprint(locks.New(unnamed{other}, nil)))
	core, records := observer.New(zap.InfoLevel)
	zap.New(core).Info("", zap.Any("storage", s))
	assert.Equal(t, "secretive", records.All()[0].ContextMap()["storage"])
}

// domain is what every test obtains a certificate for, and lockName the lock under which certmagic does so.
const (
	domain   = "example.com"
	lockName = "issue_cert_" + domain
)

// retryIntervals is how long certmagic waits before each new attempt: a minute, and then longer.
//
//go:linkname retryIntervals github.com/caddyserver/certmagic.retryIntervals
var retryIntervals []time.Duration

func init() {
	for i := range retryIntervals {
		retryIntervals[i] = 20 * time.Millisecond
	}
}

// authority is a certificate authority, which several issuers share. It counts.
type authority struct {
	issued, inside atomic.Int64 // certificates, and issuers
	atOnce         atomic.Bool  // whether two were inside at the same time
}

// issuer issues certificates that are valid for so long, beginning 100 days ago.
type issuer struct {
	*authority

	valid time.Duration
	meet  func(ctx context.Context) error // what happens meanwhile
}

func (i issuer) IssuerKey() string { return "test" }

func (i issuer) Issue(ctx context.Context, csr *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	if i.inside.Add(1) > 1 {
		i.atOnce.Store(true)
	}
	defer i.inside.Add(-1)
	if i.meet != nil {
		if err := i.meet(ctx); err != nil {
			return nil, err
		}
	}
	serial := big.NewInt(i.issued.Add(1))
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	leaf := &x509.Certificate{SerialNumber: serial, DNSNames: csr.DNSNames, NotBefore: now.AddDate(0, 0, -100), NotAfter: now.Add(i.valid)}
	parent := &x509.Certificate{Subject: pkix.Name{CommonName: "test"}}
	der, err := x509.CreateCertificate(rand.Reader, leaf, parent, csr.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// files is a storage that processes share. Its own locks are not to be used.
type files struct{ *certmagic.FileStorage }

var errOwnLock = errors.New("the lock of the storage was used")

func (files) Lock(context.Context, string) error            { return errOwnLock }
func (files) TryLock(context.Context, string) (bool, error) { return false, errOwnLock }
func (files) Unlock(context.Context, string) error          { return errOwnLock }

func newFiles(dir string) files { return files{&certmagic.FileStorage{Path: dir}} }

// config returns what a process has.
func config(t testing.TB, storage certmagic.Storage, i issuer) *certmagic.Config {
	t.Helper()
	var cfg *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return cfg, nil },
		Logger:           zap.NewNop(),
	})
	t.Cleanup(cache.Stop)
	if i.valid == 0 {
		i.valid = 300 * 24 * time.Hour
	}
	cfg = certmagic.New(cache, certmagic.Config{Storage: storage, Issuers: []certmagic.Issuer{i}, Logger: zap.NewNop(), OCSP: certmagic.OCSPConfig{DisableStapling: true}})
	return cfg
}

// stored returns the serial number of the certificate in the storage, which fits the private key there.
func stored(t *testing.T, storage certmagic.Storage) int64 {
	t.Helper()
	cert, err := config(t, storage, issuer{}).CacheManagedCertificate(t.Context(), domain)
	require.NoError(t, err)
	return cert.Leaf.SerialNumber.Int64()
}

const patience = testwait.Patience(time.Minute)

// long is the TTL of holds that are not to end by themselves, on a busy machine.
const long = 20 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.Tests(m)) }

// memory returns the URL of locks that no other test has.
func memory(t *testing.T) string { return "mem://" + t.Name() }

// open returns a Client as a process of its own has it, under a prefix of the test.
func open(t *testing.T, url string, opts ...locker.Option) *locker.Client {
	t.Helper()
	return testwait.Closed(locker.Open(t.Context(), url, append([]locker.Option{locker.WithTTL(long), locker.WithPrefix(t.Name())}, opts...)...))(t)
}
