package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log"
	"math/big"
	"time"

	"github.com/caddyserver/certmagic"
)

// testIssuer signs certificates itself, which no browser trusts, and asks nobody. A program that others trust has a
// certmagic.ACMEIssuer in its place.
type testIssuer struct{ log *log.Logger }

// IssuerKey implements certmagic.Issuer.
func (testIssuer) IssuerKey() string { return "test" }

// Issue implements certmagic.Issuer.
func (i testIssuer) Issue(_ context.Context, csr *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	const lasts, bits = 90 * 24 * time.Hour, 64
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), bits))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	certificate := &x509.Certificate{SerialNumber: serial, DNSNames: csr.DNSNames, NotBefore: now, NotAfter: now.Add(lasts)}
	authority := &x509.Certificate{Subject: pkix.Name{CommonName: "a test: trust nothing of it"}}
	der, err := x509.CreateCertificate(rand.Reader, certificate, authority, csr.PublicKey, key)
	if err != nil {
		return nil, err
	}
	i.log.Printf("issued a certificate for %s", csr.DNSNames)
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}
