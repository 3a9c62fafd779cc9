package fence_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What a program with that import links, beside the standard library: the resource's side knows no lock.
func TestImports_areNoMoreThanAFenceNeeds(t *testing.T) {
	const fences = "github.com/go-locker/locker/fence"
	for path, needs := range map[string][]string{
		fences:                nil,
		fences + "/filefence": {fences, "github.com/gofrs/flock", "golang.org/x/sys/"},
		fences + "/httpfence": {fences},
	} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", path).Output()
		require.NoError(t, err)
		for linked := range strings.FieldsSeq(string(out)) {
			first, _, _ := strings.Cut(linked, "/")
			needed := linked == path || !strings.Contains(first, ".") || strings.HasPrefix(linked, "vendor/")
			for _, n := range needs {
				needed = needed || linked == n || strings.HasSuffix(n, "/") && strings.HasPrefix(linked, n)
			}
			assert.True(t, needed, "%s links %s", path, linked)
		}
	}
}
