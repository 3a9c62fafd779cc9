package names

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What PostgreSQL 15 says is: select hashtext(…).
func TestHashtext(t *testing.T) {
	for text, want := range map[string]int32{
		"": -1477818771, "a": 1075015857, "hello": -1870292951, "locker:orders/42": 1092958155, "exactly-24-bytes-of-text": 1263432902,
	} {
		assert.Equal(t, want, int32(hashtext([]byte(text))), text)
	}
}

func TestCollision(t *testing.T) {
	for _, h := range hashes {
		a, b := h.collision("stem")
		require.NotEqual(t, a, b)
		assert.Equal(t, h.of([]byte(a)), h.of([]byte(b)), h.name)
	}
}
