package s3_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/knownbreaks"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/shares"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/s3"
)

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
	d := s3.NewDriver(clientOf(t, s), "bucket", "").(shares.Driver)
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
