package redisscript

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
	take, takeShared, propose, extend, extendShared, release, releaseShared, downgrade, raise, inspect, force, notify, info,
}

// releaseOf returns the script that releases what owner has.
func releaseOf(owner string) *Script {
	if strings.Contains(owner, "~") {
		return releaseShared
	}
	return release
}

// argument returns what a script was given under a name.
func argument(s *Script, args []any, name string) any { return args[slices.Index(s.args, name)] }

var (
	comments = regexp.MustCompile(`--.*`)
	records  = regexp.MustCompile(`\{(\w[^{}]*)\}`)
)

// What the one side sends in an order the other side reads in that order, under the same names.
func TestScripts_agreeWithGo(t *testing.T) {
	replies := map[*Script][][]string{
		take:       {takeReplies[granted], takeReplies[held], takeReplies[late]},
		takeShared: {takeReplies[granted], takeReplies[held], takeReplies[late]},
		propose:    {takeReplies[granted], takeReplies[held], takeReplies[late]},
		inspect:    {inspectReply},
		info:       {infoReply},
	}
	for _, s := range scripts {
		source := comments.ReplaceAllString(s.Source, "")
		assert.LessOrEqual(t, len(s.args), mostArgs)
		assert.Contains(t, source, "local "+strings.Join(s.args, ", ")+" = unpack(ARGV)")
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
	for name, value := range map[string]int{"GRANTED": granted, "HELD": held, "LATE": late, "WHOLE": digits + 1, "NUMBER": 2*digits + 1} {
		require.Contains(t, take.Source+propose.Source, fmt.Sprintf("local %s = %d\n", name, value))
	}
}
