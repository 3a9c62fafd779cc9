package zookeeper

import (
	"testing"

	"github.com/go-locker/locker/internal/test/fuzzurl"
)

func FuzzOpen(f *testing.F) {
	fuzzurl.Run(f, plainScheme, open, "h1:1,[::1]/apps/shop?dial_timeout=1s&tick=2s&acl=creator", "h/a//b?acl=world", "h?tls_ca=x")
}

func FuzzOpen_tls(f *testing.F) {
	fuzzurl.Run(f, plainScheme+"s", open, "h?tls_ca=ca.pem&tls_cert=c.pem&tls_key=k.pem&tls_server_name=n", "h/a?tls_skip_verify=true")
}
