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
	"math/big"
	"sync"
	"testing"
	"time"
	_ "unsafe" // for linkname

	"github.com/caddyserver/certmagic"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

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
	mu             sync.Mutex
	issued         int
	inside, atOnce int // issuers, and how many there were at the same time
}

func (a *authority) enter() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inside++
	a.atOnce = max(a.atOnce, a.inside)
}

func (a *authority) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inside--
}

// count returns how many certificates were issued, and how many issued at the same time.
func (a *authority) count() (issued, atOnce int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.issued, a.atOnce
}

// issuer issues certificates that are valid for so long, beginning 100 days ago.
type issuer struct {
	*authority

	valid time.Duration
	meet  func(ctx context.Context) error // what happens meanwhile
}

func (i issuer) IssuerKey() string { return "test" }

func (i issuer) Issue(ctx context.Context, csr *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	i.enter()
	defer i.leave()
	if i.meet != nil {
		if err := i.meet(ctx); err != nil {
			return nil, err
		}
	}
	i.mu.Lock()
	i.issued++
	serial := big.NewInt(int64(i.issued))
	i.mu.Unlock()
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
