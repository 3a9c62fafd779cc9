package postgres

import (
	"context"
	"testing"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/fuzzurl"
)

func FuzzOpen(f *testing.F) {
	fuzzurl.Run(f, "postgres", func(_ context.Context, u *driver.URL) (driver.Driver, error) {
		_, err := poolConfig(u)
		return nil, err
	}, "h1:1,[::1]/db?table=a.b&sslmode=disable", "h/x", "h?sslrootcert=x")
}
