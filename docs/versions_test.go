package docs_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The page names the servers on which the suite ran last, each in its row.
func TestCompatibility_namesTheServersOfTheGuarantees(t *testing.T) {
	file, err := os.Open("guarantees.json")
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	var first struct {
		Setting struct{ Server string }
	}
	require.NoError(t, json.NewDecoder(file).Decode(&first))
	page, err := os.ReadFile("compatibility.md")
	require.NoError(t, err)
	servers := strings.Split(first.Setting.Server, ", ")
	assert.Len(t, servers, 9)
	for _, server := range servers {
		name, version, _ := strings.Cut(server, " ")
		assert.Regexp(t, `(?m)^\| `+name+` .*\b`+version+`\b`, string(page), "the row of %s does not name %s", name, version)
	}
}
