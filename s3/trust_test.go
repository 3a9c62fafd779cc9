package s3_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/s3"
)

// without has the store never see a header, as if it did not know it. Requests are signed anew.
func without(t *testing.T, r *relay, header string) {
	t.Helper()
	r.answer(func(w http.ResponseWriter, request *http.Request) {
		if request.Method == http.MethodPut {
			request.Header.Del(header)
			request.Header.Del("Authorization")
			request.Header.Del("Accept-Encoding") // which the proxy sets, unsigned
			request.URL.Host, request.URL.Scheme = request.Host, "http"
			err := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }).SignHTTP(request.Context(),
				aws.Credentials{AccessKeyID: testserver.S3AccessKey, SecretAccessKey: testserver.S3SecretKey}, request,
				request.Header.Get("X-Amz-Content-Sha256"), "s3", "us-east-1", time.Now())
			assert.NoError(t, err)
		}
		r.store.ServeHTTP(w, request)
	})
}

// There are stores that accept a condition and ignore it: two would hold a lock.
func TestSelfTest_ofAStoreThatIgnoresConditions(t *testing.T) {
	onEach(t, func(t *testing.T, r *relay) {
		for _, header := range []string{"If-None-Match", "If-Match"} {
			without(t, r, header)
			c, err := s3.New(r.client(t), "bucket", t.Name())
			require.NoError(t, err)
			err = c.Mutex("name").Lock(t.Context())
			require.ErrorIs(t, err, locker.ErrUnsupported)
			require.ErrorContains(t, err, "ignores "+header)
			require.ErrorContains(t, err, "use a store with conditional writes")
			require.NoError(t, c.Close())
		}
		r.answer(nil)
		take(t, r.driver(t), "name")
	})
}

// A failure tells nothing of the store: the next request tries again.
func TestSelfTest_thatIsNotAnswered(t *testing.T) {
	r := relayTo(t, newFake())
	d := r.driver(t)
	r.answer(func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusServiceUnavailable, "SlowDown") })
	_, err := d.Claim(request("name")).Ask(t.Context())
	require.ErrorContains(t, err, "self-test")
	require.NotErrorIs(t, err, locker.ErrUnsupported)
	r.answer(nil)
	take(t, d, "name")
}

func TestSelfTest_leavesNothing(t *testing.T) {
	f := newFake()
	r := relayTo(t, f)
	take(t, r.driver(t), "name")
	assert.Len(t, f.keys(), 1)
	stubborn := newFake()
	r = relayTo(t, stubborn)
	without(t, r, "If-None-Match")
	_, err := r.driver(t).Claim(request("name")).Ask(t.Context())
	require.ErrorIs(t, err, locker.ErrUnsupported)
	assert.Empty(t, stubborn.keys())
}
