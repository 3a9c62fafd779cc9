package stopwatch

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestStart_countsWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		elapsed := Start(t)
		time.Sleep(time.Second + tick/2)
		synctest.Wait()
		assert.Equal(t, time.Second, elapsed())
	})
}

// A late tick means that nothing ran, which a test cannot bring about.
func TestCounted_ofALateTickIsLittle(t *testing.T) {
	assert.Equal(t, tick, counted(tick))
	assert.Equal(t, 3*tick, counted(3*tick), "a busy machine")
	assert.Equal(t, most, counted(time.Minute), "one that stood still")
}
