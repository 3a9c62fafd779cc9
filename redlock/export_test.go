package redlock

import (
	"testing"

	"github.com/go-locker/locker/internal/test/fuzzurl"
	_ "github.com/go-locker/locker/redigo"
	_ "github.com/go-locker/locker/redis"
)

func FuzzOpen(f *testing.F) {
	fuzzurl.Run(f, "redlock", open,
		"h1,h2:1,[::1]:2/1?node_timeout=50ms&pool_size=3", "h1,h2,h1:6379?driver=redigo", "h1,h2,h3?driver=rediss&tls_skip_verify=true",
		"h1,h2,h3?cluster=true", "h1,h2,h3?driver=redlock", "h1,h2")
}
