package redigo

import (
	"testing"

	"github.com/go-locker/locker/internal/test/fuzzurl"
)

func FuzzOpen(f *testing.F) {
	fuzzurl.Run(f, plainScheme, open,
		"h:1/3?dial_timeout=1s&read_timeout=2s&write_timeout=3s&pool_size=4&client_name=x",
		"s1,[::1]:2/1?master_name=m&sentinel_username=u", "h?replicas=1&replica_timeout=20ms",
		"/0?socket=/run/redis.sock", "h1,h2", "h/x", "h?tls_ca=x")
}

func FuzzOpen_tls(f *testing.F) {
	fuzzurl.Run(f, plainScheme+"s", open, "h?tls_ca=ca.pem&tls_cert=c.pem&tls_key=k.pem&tls_server_name=n", "h?tls_skip_verify=true")
}
