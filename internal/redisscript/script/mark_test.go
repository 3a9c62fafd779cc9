package script

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// After a failover, or behind a proxy, a Client hears of the marks of several servers.
func TestMark_whatThatOfAnotherServerCoversDoesNotCount(t *testing.T) {
	const now int64 = 1_700_000_000_000_000
	m := &Mark{}
	m.OnGrant(Answer{Now: now, covered: now + coverMicros})
	m.OnGrant(Answer{Now: now + coverMicros/2})
	assert.Equal(t, now+coverMicros, m.covered.Load(), "by the same clock")
	m.OnGrant(Answer{Now: now - coverMicros})
	assert.Zero(t, m.covered.Load(), "by a clock that is behind, the mark of which is not known")
}
