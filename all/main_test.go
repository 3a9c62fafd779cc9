package all_test

import (
	"os"
	"testing"

	"github.com/go-locker/locker/internal/test/testserver"
)

func TestMain(m *testing.M) { os.Exit(testserver.Tests(m).Run()) }
