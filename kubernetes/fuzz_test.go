package kubernetes

import (
	"context"
	"testing"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/fuzzurl"
)

func FuzzOpen(f *testing.F) {
	fuzzurl.Run(f, "kubernetes", func(_ context.Context, u *driver.URL) (driver.Driver, error) {
		_, _, err := loading(u)
		return nil, err
	}, "h:6443?kubeconfig=x&context=a&namespace=b", "h/x", "h1,h2", "?context=")
}
