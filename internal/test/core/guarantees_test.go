package core_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

func TestRequire_namesWhatIsMissingAndItsCondition(t *testing.T) {
	for want, g := range map[string]locker.Guarantee{
		`"fencing" is conditional: promised only while the moon is full`: locker.Fencing,
		`"failover" is not promised: there is one of it`:                 locker.Failover,
		`"ordered" is not promised`:                                      locker.Ordered,
		`"fencing-durable" is not promised`:                              locker.FencingDurable,
	} {
		_, err := locker.New(&fakeDriver{}, locker.Require(locker.Exclusive, g))
		require.ErrorIs(t, err, locker.ErrUnsupported)
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), `"exclusive"`, "that one is promised")
	}
}

func TestRequire_namesAllThatIsMissing(t *testing.T) {
	_, err := locker.New(&fakeDriver{}, locker.Require(locker.Fencing), locker.Require(locker.Woken, locker.Exclusive))
	require.ErrorContains(t, err, `"fencing"`)
	require.ErrorContains(t, err, `"woken"`)
}

// It ends up in a log, where a line is an event.
func TestRequire_isOneLine(t *testing.T) {
	_, err := locker.New(&fakeDriver{}, locker.Require(locker.Fencing, locker.Failover, locker.Fencing))
	require.EqualError(t, err, `locker: new: not supported by the backend: `+
		`"fencing" is conditional: promised only while the moon is full; "failover" is not promised: there is one of it`)
}

func TestRequire_unknownGuaranteeNamesTheKnown(t *testing.T) {
	_, err := locker.New(&fakeDriver{}, locker.Require("speed"))
	require.ErrorContains(t, err, `"speed"`)
	require.ErrorContains(t, err, "exclusive, failover, fencing, fencing-durable, ordered, woken")
}

func TestRequire_whatIsPromised(t *testing.T) {
	c, err := locker.New(&fakeDriver{}, locker.Require(locker.Exclusive))
	require.NoError(t, err)
	assert.Equal(t, locker.LevelYes, c.Guarantees()[locker.Exclusive].Level)
	assert.Equal(t, "while the moon is full", c.Guarantees()[locker.Fencing].Condition)
	assert.Equal(t, locker.LevelNo, c.Guarantees()[locker.Woken].Level, "what is missing is not promised")
	assert.Equal(t, c.Guarantees(), c.Mutex("x").Guarantees())
	require.NoError(t, c.Close())
}

func TestPromise_inWords(t *testing.T) {
	assert.Equal(t, "yes", locker.Promise{Level: locker.LevelYes}.String())
	assert.Equal(t, "no", locker.Promise{}.String())
	assert.Equal(t, "conditional: at night", locker.Promise{Level: locker.LevelConditional, Condition: "at night"}.String())
}
