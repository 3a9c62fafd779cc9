package driver_test

import (
	"context"
	"fmt"
	"log"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/memory"
)

func init() {
	driver.Register("example", openExample)
}

// openExample takes the parameters that it knows off the URL. Open refuses those that are left.
func openExample(_ context.Context, u *driver.URL) (driver.Driver, error) {
	region, ok := u.Take("region")
	if !ok {
		return nil, fmt.Errorf("%s:// needs a region, as in %s://host?region=eu", u.Scheme, u.Scheme)
	}
	fmt.Println("region", region, "at", u)
	return memory.NewDriver(memory.InSpace("example-" + region)), nil
}

// An adapter registers its scheme when it is imported.
func ExampleRegister() {
	ctx := context.Background()
	client, err := locker.Open(ctx, "example://me:secret@h1,h2/path?region=eu&ttl=5s")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(client.Close())

	_, err = locker.Open(ctx, "example://h1?region=eu&colour=red")
	fmt.Println(err)
	// Output:
	// region eu at example://me:xxxxx@h1,h2/path
	// <nil>
	// region eu at example://h1?colour=red
	// locker: open: example:// does not know the parameter "colour": known are backoff, metadata, prefix, region, renew, require, token_base, ttl
}
