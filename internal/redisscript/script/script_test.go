package script

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var scripts = []*Script{
	Take, TakeShared, Propose, Extend, ExtendShared, Release, ReleaseShared, Downgrade, Raise, Inspect, Force, Notify, Info,
}

var (
	comments  = regexp.MustCompile(`--.*`)
	arguments = regexp.MustCompile(`(?m)^local ([\w, ]+) = unpack\(ARGV\)`)
	records   = regexp.MustCompile(`\{(\w[^{}]*)\}`)
)

// What the one side sends in an order the other side reads in that order, under the same names.
func TestScripts_agreeWithGo(t *testing.T) {
	replies := map[*Script][][]string{
		Take:       {takeReplies[Granted], takeReplies[Held], takeReplies[Late]},
		TakeShared: {takeReplies[Granted], takeReplies[Held], takeReplies[Late]},
		Propose:    {takeReplies[Granted], takeReplies[Held], takeReplies[Late]},
		Inspect:    {inspectReply},
		Info:       {infoReply},
	}
	for _, s := range scripts {
		source := comments.ReplaceAllString(s.Source, "")
		args := arguments.FindStringSubmatch(source)
		require.NotEmpty(t, args)
		assert.LessOrEqual(t, strings.Count(args[1], ",")+1, MostArgs)
		assert.Equal(t, 1, strings.Count(source, "ARGV"), "the arguments have no other names")

		var want, got []string
		for _, names := range replies[s] {
			want = append(want, strings.Join(names, ", "))
		}
		for _, found := range records.FindAllStringSubmatch(source, -1) {
			got = append(got, found[1])
		}
		slices.Sort(want)
		slices.Sort(got)
		assert.Equal(t, want, slices.Compact(got), "what it returns, in this order")
	}
	for name, value := range map[string]int{"GRANTED": Granted, "HELD": Held, "LATE": Late, "WHOLE": digits + 1, "NUMBER": 2*digits + 1} {
		require.Contains(t, Take.Source+Propose.Source, fmt.Sprintf("local %s = %d\n", name, value))
	}
}
