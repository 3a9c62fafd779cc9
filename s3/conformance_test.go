package s3_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/knownbreaks"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
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

// harnessFor has all faults but FailOver, for there is nobody to take over, and MoveClock: a store that is written in Go
// asks the kernel for the time.
func harnessFor(s *testserver.S3Server) conformance.Harness {
	h := harness.ForURL(3*time.Second, "s3://bucket?endpoint=http://%s", []string{s.Addr()})
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

// revoke is what an operator may do: it deletes the object. In the second of the grant it waits, for the next token would
// not be larger.
func revoke(t conformance.TB, s *testserver.S3Server, name string) {
	client, key := clientOf(t, s), aws.String("locker/"+url.QueryEscape("locker:"+name)+".lock")
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		out, err := client.GetObject(t.Context(), &awss3.GetObjectInput{Bucket: aws.String("bucket"), Key: key})
		if err != nil {
			t.Fatalf("revoke: %v", err)
		}
		var hold struct{ Token int64 }
		err = json.NewDecoder(out.Body).Decode(&hold)
		_ = out.Body.Close()
		if err != nil {
			t.Fatalf("revoke: %v", err)
		}
		if time.Now().Unix() == time.UnixMicro(hold.Token).Unix() {
			nextSecond()
			continue
		}
		if _, err = client.DeleteObject(t.Context(), &awss3.DeleteObjectInput{Bucket: aws.String("bucket"), Key: key, IfMatch: out.ETag}); err == nil {
			return
		}
	}
	t.Fatalf("revoke: %s is written again and again", name)
}

// noKeepAlive keeps no connection that a test which looks for leaks would find.
var noKeepAlive = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
