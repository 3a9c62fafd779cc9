package s3_test

import (
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

func TestOpen(t *testing.T) {
	onEach(t, func(t *testing.T, r *relay) {
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
	for url, why := range map[string]string{
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
		"s3://key:hidden@bucket?region=x":              "AWS_SECRET_ACCESS_KEY",
		"s3://bucket?endpoint=http://key:hidden@h:1":   "",
		"s3://bucket?endpoint=http://key:hidden%40h:1": "endpoint is not http",
	} {
		_, err := locker.Open(t.Context(), url)
		require.Error(t, err, url)
		require.ErrorContains(t, err, why, url)
		assert.NotContains(t, err.Error(), "hidden")
	}
}

// No error shows a secret: neither one of the network, nor what a store answers.
func TestErrors_showNoSecret(t *testing.T) {
	check := func(url string) {
		t.Helper()
		c, err := locker.Open(t.Context(), url)
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		err = c.Mutex("name", locker.WithTTL(3*time.Second)).TryLock(t.Context())
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
	onEach(t, func(t *testing.T, r *relay) {
		c, err := locker.Open(t.Context(), "s3://no-such-bucket?endpoint="+r.URL)
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		require.ErrorContains(t, c.Mutex("name").TryLock(t.Context()), "NoSuchBucket")
		_, err = c.Inspect(t.Context(), "name")
		require.ErrorContains(t, err, "NoSuchBucket")
	})
}
