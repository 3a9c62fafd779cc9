package s3_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	smithyendpoints "github.com/aws/smithy-go/endpoints"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
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
	patience.Until(t, "the self-test leaves nothing", func() bool { return len(stubborn.keys()) == 0 })
}

// A store that falls silent within the self-test keeps neither Lock nor Close.
func TestSelfTest_ofAStoreThatFallsSilent(t *testing.T) {
	for heard := range 7 {
		r := relayTo(t, newFake())
		silent, over := make(chan struct{}), make(chan struct{})
		t.Cleanup(func() { close(over) })
		var requests atomic.Int32
		r.answer(func(w http.ResponseWriter, request *http.Request) {
			if n := int(requests.Add(1)); n > heard {
				if n == heard+1 {
					close(silent)
				}
				<-over
				return
			}
			r.store.ServeHTTP(w, request)
		})
		d := s3.NewDriver(r.client(t), "bucket", t.Name())
		ctx, cancel := context.WithCancel(t.Context())
		result := testwait.Go(func() error {
			_, err := d.Claim(request("name")).Ask(ctx)
			return errors.Join(err, d.Close())
		})
		<-silent
		cancel()
		require.ErrorIs(t, patience.Result(t, result), context.Canceled, "after %d requests", heard)
	}
}

// Clients that may reach different stores do not share a self-test.
func TestSelfTest_ofClientsWithEndpointResolvers(t *testing.T) {
	good, bad := relayTo(t, newFake()), relayTo(t, newFake())
	without(t, bad, "If-Match")
	to := func(r *relay) *s3.Driver {
		d := s3.NewDriver(r.client(t, func(o *awss3.Options) {
			o.BaseEndpoint = nil
			o.EndpointResolverV2 = resolver(r.URL)
		}), "bucket", t.Name())
		t.Cleanup(func() { _ = d.Close() })
		return d.(*s3.Driver)
	}
	take(t, to(good), "name")
	require.ErrorContains(t, asked(t, to(bad), "name"), "ignores If-Match")
}

type resolver string

func (r resolver) ResolveEndpoint(context.Context, awss3.EndpointParameters) (smithyendpoints.Endpoint, error) {
	u, err := url.Parse(string(r) + "/bucket")
	return smithyendpoints.Endpoint{URI: *u}, err
}

// A store is tested anew each hour, and one that is busy then is trusted for longer.
func TestSelfTest_isRepeated(t *testing.T) {
	r := relayTo(t, newFake())
	d := r.driver(t)
	take(t, d, "a")
	s3.Age(d)
	assert.Equal(t, 5, r.count(func() { take(t, d, "b") })["PUT"])
	assert.Equal(t, 1, r.count(func() { take(t, d, "c") })["PUT"])
	s3.Age(d)
	r.answer(func(w http.ResponseWriter, request *http.Request) {
		if strings.Contains(request.URL.Path, "self-test") {
			answer(w, http.StatusServiceUnavailable, "SlowDown")
			return
		}
		r.store.ServeHTTP(w, request)
	})
	take(t, d, "d")
	without(t, r, "If-Match")
	require.ErrorIs(t, asked(t, d, "e"), locker.ErrUnsupported)
}
