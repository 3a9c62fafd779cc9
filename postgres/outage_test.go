package postgres_test

import (
	"testing"

	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestOutage_isRiddenOutForHalfATTL(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	harness.Outage(t, s.URL(), s.Kill)
}
