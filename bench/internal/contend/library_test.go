package contend

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTurn_letsEachLibraryComeFirst(t *testing.T) {
	libraries := Libraries{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	first := make(map[string]bool)
	for round := range libraries {
		order := libraries.Turn(round)
		require.Len(t, order, len(libraries))
		first[order[0].Name] = true
	}
	assert.Len(t, first, len(libraries))
}

func TestNamed_isInTheOrderAskedFor(t *testing.T) {
	libraries := Libraries{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	some, err := libraries.Named("c, a")
	require.NoError(t, err)
	assert.Equal(t, "c,a", some.Names())
	for _, names := range []string{"", "a,d", "a,"} {
		_, err := libraries.Named(names)
		require.Error(t, err, "%q", names)
	}
}
