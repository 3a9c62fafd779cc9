package fence_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

const patience = time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
