package s3_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// The processes that Harnesses start have these credentials, too. Nothing of this machine counts.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": testserver.S3AccessKey, "AWS_SECRET_ACCESS_KEY": testserver.S3SecretKey, "AWS_SESSION_TOKEN": "",
		"AWS_REGION": "", "AWS_DEFAULT_REGION": "", "AWS_PROFILE": "", "AWS_ENDPOINT_URL": "", "AWS_ENDPOINT_URL_S3": "",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_EC2_METADATA_DISABLED": "true",
	} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	harness.Serve()
	goleak.VerifyTestMain(testserver.Tests(m))
}

const patience = testwait.Patience(20 * time.Second)

const ttl = 10 * time.Second

func request(name string) driver.Request {
	return driver.Request{Name: name, Metadata: "test", TTL: ttl}
}

// take returns a claim that was granted.
func take(t testing.TB, d driver.Driver, name string) driver.Claim {
	t.Helper()
	c := d.Claim(request(name))
	_, err := c.Ask(t.Context())
	require.NoError(t, err)
	return c
}

// held asks for a lock that is another's.
func held(t testing.TB, d driver.Driver, name string) {
	t.Helper()
	_, err := claims.Take(t.Context(), d, request(name))
	require.ErrorIs(t, err, locker.ErrHeld)
}
