package redisurl_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/redisscript/script"
	"github.com/go-locker/locker/internal/redisurl"
)

// read reads a URL of an adapter that knows clusters, or none.
func read(t *testing.T, text string, clusters bool) (*redisurl.Target, error) {
	t.Helper()
	u, err := url.Parse(text)
	require.NoError(t, err)
	of := &driver.URL{Scheme: u.Scheme, Path: u.Path, User: u.User, Query: u.Query()}
	if u.Host != "" {
		of.Hosts = []string{u.Host}
	}
	of.Hosts = append(of.Hosts, of.Query["and"]...)
	of.Query.Del("and")
	target, err := redisurl.Read(t.Context(), of, "redis", clusters)
	if err == nil {
		assert.Empty(t, of.Query, "parameters that were not taken: %s", text)
	}
	return target, err
}

func TestRead(t *testing.T) {
	for text, want := range map[string]redisurl.Target{
		"redis://":                         {Addrs: []string{"localhost:6379"}},
		"redis:///":                        {Addrs: []string{"localhost:6379"}},
		"redis://h/15":                     {Addrs: []string{"h:6379"}, DB: 15},
		"redis://[fe80::1%25eth0]:7000":    {Addrs: []string{"[fe80::1%eth0]:7000"}},
		"redis://:pw@h:1":                  {Addrs: []string{"h:1"}, Password: "pw"},
		"redis://u:p%3A%40%2F%3F@h":        {Addrs: []string{"h:6379"}, User: "u", Password: "p:@/?"},
		"redis:///2?socket=/run/s":         {Addrs: []string{"/run/s"}, DB: 2},
		"redis://h?client_name=shop-3:x":   {Addrs: []string{"h:6379"}, ClientName: "shop-3:x"},
		"redis://h?cluster=true&and=[::1]": {Addrs: []string{"h:6379", "[::1]:6379"}, Cluster: true},
		"redis://s?master_name=m&and=t:1":  {Addrs: []string{"s:26379", "t:1"}, Sentinel: redisurl.Sentinel{Master: "m"}},
		"redis://s?master_name=m&sentinel_username=u&sentinel_password=p": {
			Addrs: []string{"s:26379"}, Sentinel: redisurl.Sentinel{Master: "m", Username: "u", Password: "p"},
		},
		"redis://s?master_name=m&sentinel_password=p": {
			Addrs: []string{"s:26379"}, Sentinel: redisurl.Sentinel{Master: "m", Password: "p"},
		},
		"redis://h?replicas=2": {Addrs: []string{"h:6379"}, Replicas: script.Replicas{N: 2, Timeout: time.Second}},
		"redis://h?replicas=1&replica_timeout=50ms": {
			Addrs: []string{"h:6379"}, Replicas: script.Replicas{N: 1, Timeout: 50 * time.Millisecond},
		},
		"redis://h?pool_size=7&dial_timeout=1s&read_timeout=20ms&write_timeout=3m": {
			Addrs: []string{"h:6379"}, PoolSize: 7, DialTimeout: time.Second, ReadTimeout: 20 * time.Millisecond, WriteTimeout: 3 * time.Minute,
		},
	} {
		got, err := read(t, text, true)
		require.NoError(t, err, text)
		assert.Equal(t, want, *got, text)
		assert.Nil(t, got.DialTLS(time.Second), text)
	}
	secure, err := read(t, "rediss://h?tls_skip_verify=true", false)
	require.NoError(t, err)
	assert.NotNil(t, secure.DialTLS(time.Second))
}

func TestRead_badInputIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		"redis://h?and=i":                                                "master_name, if they are sentinels, or cluster=true",
		"redis://h?and=i&cluster=false":                                  "master_name",
		"redis://h?cluster=maybe":                                        "cluster",
		"redis://h/1?cluster=true&and=i":                                 "cluster",
		"redis://h?cluster=true&master_name=m":                           "master_name and cluster",
		"redis://h/x":                                                    "database number",
		"redis://h/-1":                                                   "database number",
		"redis://h/+1":                                                   "database number",
		"redis://h/0/1":                                                  "database number",
		"redis://h/99999999999":                                          "database number",
		"redis://h?dial_timeout=x":                                       "dial_timeout",
		"redis://h?read_timeout=0s":                                      "read_timeout",
		"redis://h?write_timeout=-1s":                                    "write_timeout",
		"redis://h?pool_size=0":                                          "pool_size",
		"redis://h?tls_ca=/ca.pem":                                       "tls_ca goes with rediss://",
		"rediss://h?tls_ca=/no/such.pem":                                 "/no/such.pem",
		"redis://user@h":                                                 "a user goes with a password",
		"redis://h?client_name=":                                         "client_name",
		"redis://h?client_name=two%20words":                              "client_name",
		"redis://h?client_name=na%C3%AFve":                               "client_name",
		"redis://h?client_name=%7F":                                      "client_name",
		"redis://h?socket=/run/redis.sock":                               "place of a host",
		"redis://?socket=redis.sock":                                     "absolute path",
		"redis://?socket=":                                               `socket=""`,
		"rediss://?socket=/run/redis.sock":                               "use redis://",
		"redis://?socket=/run/redis.sock&cluster=true":                   "socket",
		"redis://?socket=/run/redis.sock&master_name=m":                  "socket",
		"redis://h?master_name=":                                         "master_name is empty",
		"redis://h?sentinel_username=u":                                  "sentinel_username goes with master_name",
		"redis://h?sentinel_password=p":                                  "sentinel_password goes with master_name",
		"redis://h?master_name=m&sentinel_username=u":                    "sentinel_password",
		"redis://h?master_name=m&sentinel_password=":                     "sentinel_password is empty",
		"redis://h?master_name=m&sentinel_username=&sentinel_password=p": "sentinel_username",
		"redis://h?replicas=0":                                           "replicas",
		"redis://h?replicas=x":                                           "replicas",
		"redis://h?replica_timeout=1s":                                   "replica_timeout goes with replicas",
		"redis://h?replicas=1&replica_timeout=0s":                        "replica_timeout",
		"redis://h?replicas=1&replica_timeout=1500us":                    "whole milliseconds",
	} {
		_, err := read(t, text, true)
		require.ErrorContains(t, err, want, text)
	}
	_, err := read(t, "redis://h?and=i", false)
	require.ErrorContains(t, err, "takes one host")
}
