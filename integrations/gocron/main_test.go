package gocron_test

import (
	"os"
	"testing"

	"github.com/go-locker/locker/internal/test/child"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestMain(m *testing.M) {
	child.Serve()
	os.Exit(testserver.Tests(m).Run())
}
