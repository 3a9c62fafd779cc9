package stdio

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestToken_isANumberOrDigits(t *testing.T) {
	for line, want := range map[string]uint64{
		`{"id":1,"result":"ok","token":18446744073709551615}`:   1<<64 - 1,
		`{"id":1,"result":"ok","token":"18446744073709551615"}`: 1<<64 - 1,
		`{"id":1,"result":"ok","token":null}`:                   0,
		`{"id":1,"result":"ok"}`:                                0,
	} {
		answer, err := ReadAnswer([]byte(line))
		require.NoError(t, err, line)
		assert.Equal(t, want, uint64(answer.Token), line)
	}
}

// The time-out of a lock is never 0 by rounding: 0 says that there is no time.
func TestMilliseconds_areRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]int64{-time.Second: 0, 0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2} {
		assert.Equal(t, want, Milliseconds(d), "%v", d)
	}
}
