package certmagic_test

import (
	"context"
	"fmt"

	"github.com/caddyserver/certmagic"

	"github.com/go-locker/locker"
	locks "github.com/go-locker/locker/integrations/certmagic"
	_ "github.com/go-locker/locker/memory" // mem://
)

func ExampleNew() {
	ctx := context.Background()
	client, err := locker.Open(ctx, "mem://example-certmagic") // for several processes "redis://…", "etcd://…"
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	storage := locks.New(&certmagic.FileStorage{Path: "/shared/certificates"}, client)
	var magic *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return magic, nil },
	})
	defer cache.Stop()
	magic = certmagic.New(cache, certmagic.Config{Storage: storage})
	// magic.ManageAsync(ctx, []string{"example.com"}) now issues once, in however many processes.

	fmt.Println(magic.Storage)
	fmt.Println(storage.Lock(ctx, "issue_cert_example.com"))
	fmt.Println(storage.Unlock(ctx, "issue_cert_example.com"))
	// Output:
	// FileStorage:/shared/certificates
	// <nil>
	// <nil>
}
