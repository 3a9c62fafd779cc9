package lockervet_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/go/analysis/analysistest"

	_ "github.com/go-locker/locker" // testdata uses it
	"github.com/go-locker/locker/lockervet"
)

// The programs in testdata use the real API, so that a rule does not go on about a name that has
// changed.
func TestAnalyzer(t *testing.T) {
	module, err := os.Getwd()
	require.NoError(t, err)
	analysistest.Run(t, module, lockervet.Analyzer, "./testdata/context", "./testdata/goroutine", "./testdata/unlock")
}
