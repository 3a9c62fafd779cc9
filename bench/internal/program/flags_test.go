package program

import (
	"flag"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func parse(args ...string) (*Counts, *Parts, error) {
	f := flag.NewFlagSet("test", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	counts := Counts{2, 32}
	f.Var(&counts, "waiters", "how many")
	parts := Only(f, "pairs", "held")
	return &counts, parts, f.Parse(args)
}

func TestFlags(t *testing.T) {
	for _, c := range []struct {
		args   []string
		counts string
		parts  []string
	}{
		{nil, "2,32", []string{"pairs", "held"}},
		{[]string{"-waiters", "7, 1024", "-only", " held"}, "7,1024", []string{"held"}},
		{[]string{"-waiters", "", "-only", "held,pairs"}, "", []string{"held", "pairs"}},
	} {
		counts, parts, err := parse(c.args...)
		require.NoError(t, err)
		assert.Equal(t, c.counts, counts.String())
		assert.Equal(t, c.parts, parts.Chosen())
	}
}

func TestFlags_sayWhatIsWrong(t *testing.T) {
	for _, c := range []struct{ flag, value, says string }{
		{"-waiters", "2,x", `"x" is no number`},
		{"-waiters", "0", "0 is less than 1"},
		{"-waiters", "-1", "-1 is less than 1"},
		{"-only", "held,all", `"all" is none of pairs,held`},
		{"-only", "", "nothing of pairs,held"},
	} {
		_, _, err := parse(c.flag, c.value)
		require.ErrorContains(t, err, c.says)
		require.ErrorContains(t, err, c.flag)
	}
}
