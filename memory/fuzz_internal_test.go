package memory

import (
	"testing"

	"github.com/go-locker/locker/internal/fuzzurl"
)

func FuzzOpen(f *testing.F) {
	fuzzurl.Run(f, "mem", open, "orders", "", "/", "h:1", "h/x", "h?size=3")
}
