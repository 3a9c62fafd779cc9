package s3

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/knownbreaks"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

func TestOpen(t *testing.T) {
	onEach(t, func(t *testing.T, r *relay, _ *backend) {
		url := "s3://bucket/" + rand.Text() + "?endpoint=" + r.URL + "&ttl=10s"
		c, err := locker.Open(t.Context(), url)
		require.NoError(t, err)
		m := c.Mutex("name")
		require.NoError(t, m.Lock(t.Context()))
		require.NoError(t, m.Extend(t.Context()))
		other, err := locker.Open(t.Context(), url+"&region=us-east-1")
		require.NoError(t, err)
		require.ErrorIs(t, other.Mutex("name").TryLock(t.Context()), locker.ErrHeld)
		require.NoError(t, m.Unlock(t.Context()))
		require.NoError(t, other.Mutex("name").TryLock(t.Context()))
		require.NoError(t, other.Close())
		require.NoError(t, c.Close())
	})
}

func TestOpen_refuses(t *testing.T) {
	harness.RefusesURLs(t, map[string]string{
		"s3://":                                        "takes a bucket",
		"s3://a,b?region=x":                            "takes a bucket",
		"s3://bucket":                                  "needs a region",
		"s3://bucket?region=":                          "region is empty",
		"s3://bucket?endpoint=":                        "endpoint is not http",
		"s3://bucket?endpoint=localhost:9000":          "endpoint is not http",
		"s3://bucket?endpoint=http://h:1/?x=y":         "endpoint is not http",
		"s3://bucket?region=x&color=red":               "known are backoff, endpoint, metadata, prefix, region",
		"s3://bucket?region=x&ttl=1s":                  "whole seconds, take one from 3s to 12h",
		"s3://key@bucket?region=x":                     "AWS_SECRET_ACCESS_KEY",
		"s3://key:s3cret@bucket?region=x":              "AWS_SECRET_ACCESS_KEY",
		"s3://bucket?endpoint=http://key:s3cret@h:1":   "",
		"s3://bucket?endpoint=http://key:s3cret%40h:1": "endpoint is not http",
	})
}

// No error shows a secret: neither one of the network, nor what a store answers.
func TestErrors_showNoSecret(t *testing.T) {
	check := func(url string) {
		t.Helper()
		c := testwait.Closed(locker.Open(t.Context(), url))(t)
		err := c.Mutex("name", locker.WithTTL(3*time.Second)).TryLock(t.Context())
		require.Error(t, err)
		for _, format := range []string{"%v", "%+v", "%#v"} {
			assert.NotContains(t, fmt.Sprintf(format, err), "hidden")
		}
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hidden")
	t.Setenv("AWS_SESSION_TOKEN", "hidden")
	check("s3://bucket?endpoint=http://127.0.0.1:1")
	check("s3://bucket?endpoint=" + relayTo(t, versitygw(t)).URL)
}

// A bucket that is not there is the client's error, and no lock.
func TestErrors_ofABucketThatIsNotThere(t *testing.T) {
	onEach(t, func(t *testing.T, r *relay, _ *backend) {
		c := testwait.Closed(locker.Open(t.Context(), "s3://no-such-bucket?endpoint="+r.URL))(t)
		require.ErrorContains(t, c.Mutex("name").TryLock(t.Context()), "NoSuchBucket")
		_, err := c.Inspect(t.Context(), "name")
		require.ErrorContains(t, err, "NoSuchBucket")
	})
}

// The suite on real stores, each Locker on a client of its own.
func TestConformance(t *testing.T) {
	testwait.OnlyNightly(t, "it takes ten minutes, on stores that take minutes to build")
	for name, start := range map[string]func(testing.TB) *testserver.S3Server{"versitygw": testserver.S3, "MinIO": testserver.MinIO} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			createBucket(t, s)
			h := harnessFor(s)
			t.Parallel()
			conformance.Run(t, h)
		})
	}
}

// harnessFor has all faults but FailOver, for there is nobody to take over, and MoveClock: a store
// that is written in Go asks the kernel for the time.
func harnessFor(s *testserver.S3Server) conformance.Harness {
	h := harness.ForURL(4*time.Second, "s3://bucket?endpoint=http://%s", []string{s.Addr()})
	h.RW = nil // there are no shares
	h.Deviations = knownbreaks.S3()
	servers := []*testserver.S3Server{s}
	harness.Servers(&h.Faults, servers, s.Restart)
	h.Faults.WipeServer = func(t conformance.TB) (restart func()) {
		s.Kill()
		s.Wipe()
		return func() {
			nextSecond() // a token is the store's clock, in whole seconds
			s.Restart()
			createBucket(t, s)
		}
	}
	h.Faults.Revoke = func(t conformance.TB, name string) { revoke(t, s, name) }
	return h
}

func nextSecond() { time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) }

// clientOf makes a client of the SDK, which keeps no connections.
func clientOf(t conformance.TB, s *testserver.S3Server) *awss3.Client {
	t.Helper()
	c, err := config.LoadDefaultConfig(t.Context(), config.WithRegion("us-east-1"))
	if err != nil {
		t.Fatalf("configuration: %v", err)
	}
	return awss3.NewFromConfig(c, func(o *awss3.Options) {
		o.BaseEndpoint, o.UsePathStyle = aws.String("http://"+s.Addr()), true
		o.HTTPClient = noKeepAlive
	})
}

// createBucket makes the bucket of a store that has none.
func createBucket(t conformance.TB, s *testserver.S3Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	if _, err := clientOf(t, s).HeadBucket(ctx, &awss3.HeadBucketInput{Bucket: aws.String("bucket")}); err == nil {
		return
	}
	if _, err := clientOf(t, s).CreateBucket(ctx, &awss3.CreateBucketInput{Bucket: aws.String("bucket")}); err != nil {
		t.Fatalf("bucket: %v", err)
	}
}

// revoke is what an operator may do, by locker release --force.
func revoke(t conformance.TB, s *testserver.S3Server, name string) {
	d := NewDriver(clientOf(t, s), "bucket", "").(*backend)
	defer func() { _ = d.Close() }()
	state, err := d.Inspect(t.Context(), "locker:"+name)
	if err == nil && state.Held {
		err = d.ForceRelease(t.Context(), "locker:"+name, state)
	}
	if err != nil && !errors.Is(err, locker.ErrNotHeld) && !errors.Is(err, locker.ErrHeld) {
		t.Fatalf("revoke: %v", err)
	}
}

// noKeepAlive keeps no connection that a test which looks for leaks would find.
var noKeepAlive = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

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

// A sweep deletes the objects of locks that nobody has used for a day, and no others.
func TestSweep(t *testing.T) {
	r := relayTo(t, versitygw(t))
	s := testserver.SharedS3(t)
	folder := "sweep"
	d := NewDriver(r.client(t), "bucket", folder).(*backend)
	defer func() { _ = d.Close() }()
	file := func(name string) string { return s.File(folder + "/" + name + ".lock") }
	yesterday := time.Now().Add(-25 * time.Hour)
	for _, name := range []string{"old", "new", "crashed"} {
		require.NoError(t, take(t, d, name).Release(t.Context()))
	}
	take(t, d, "crashed")
	require.NoError(t, os.WriteFile(file("foreign"), []byte("a report"), 0o600))
	for _, name := range []string{"old", "crashed", "foreign"} {
		require.NoError(t, os.Chtimes(file(name), yesterday, yesterday))
	}
	require.NoError(t, d.sweep(t.Context()))
	for name, stays := range map[string]bool{"old": false, "crashed": false, "new": true, "foreign": true} {
		_, err := os.Stat(file(name))
		assert.Equal(t, stays, err == nil, name)
	}
	take(t, d, "crashed")
}

// An object that is taken while it is swept is not deleted.
func TestSweep_ofAnObjectThatIsTakenMeanwhile(t *testing.T) {
	f, r, d := onFake(t)
	require.NoError(t, take(t, d, "name").Release(t.Context()))
	f.forward(25 * time.Hour)
	r.on(http.MethodDelete, func(http.ResponseWriter, *http.Request) bool {
		r.answer(nil)
		take(t, d, "name")
		return false
	})
	require.NoError(t, d.sweep(t.Context()))
	held(t, d, "name")
}

// A store that ignores the condition of a DELETE is not swept.
func TestSweep_ofAStoreThatDeletesWhateverItIsTold(t *testing.T) {
	f := newFake()
	r := relayTo(t, f)
	r.on(http.MethodDelete, func(_ http.ResponseWriter, request *http.Request) bool {
		request.Header.Del("If-Match")
		return false
	})
	d := r.driver(t)
	require.NoError(t, take(t, d, "name").Release(t.Context()))
	assert.Len(t, f.keys(), 1, "the object of the self-test is gone")
	f.forward(25 * time.Hour)
	require.NoError(t, d.sweep(t.Context()))
	assert.Len(t, f.keys(), 1)
}
