package etcd

import (
	"context"
	"testing"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/fuzzurl"
)

// read is open without the client, which connects if there is a user.
func read(ctx context.Context, u *driver.URL) (driver.Driver, error) {
	_, err := clientConfig(ctx, u, nil)
	return nil, err
}

func FuzzOpen(f *testing.F) {
	fuzzurl.Run(f, plainScheme, read, "h1:1,[::1]/?dial_timeout=1s&keepalive_time=20s&keepalive_timeout=1s", "h/x", "h?tls_ca=x")
}

func FuzzOpen_tls(f *testing.F) {
	fuzzurl.Run(f, plainScheme+"s", read, "h?tls_ca=ca.pem&tls_cert=c.pem&tls_key=k.pem&tls_server_name=n", "h?tls_skip_verify=true")
}
