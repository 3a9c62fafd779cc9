package zookeeper

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/sessions"
	"github.com/go-locker/locker/internal/test/fuzzurl"
)

var oddNames = []string{
	"b", "b/", "b/c", "b%2F", "b%252F", "b%", "%", "/", "//", " ", ".", "..", "...", "./", "b\x00", "b\n", "b:c", "é", "e\u0301",
	"\u0085", "\ue000", "\uf8ff", "\ufff0", "\uffff", "\ufffd", "😀", "zookeeper", "%7Aookeeper", "{b}", "*", "\x7f",
	strings.Repeat("x", sessions.LongName), strings.Repeat("x", sessions.LongName+1), strings.Repeat("x", sessions.LongName+2), strings.Repeat("é", sessions.LongName),
}

// Whatever two names there are, and prefixes of users: each has a node of its own, two levels below
// the root of ours, and none that the server would refuse or take for another.
func FuzzEscape(f *testing.F) {
	for i, name := range oddNames {
		f.Add(name, oddNames[(i+1)%len(oddNames)])
	}
	f.Add("b%2F", "b/")
	f.Add(".", "%2E")
	f.Add("zookeeper", "%7Aookeeper")
	f.Add(strings.Repeat("x", sessions.LongName+1), escape(strings.Repeat("x", sessions.LongName+1)))
	f.Fuzz(func(t *testing.T, a, b string) {
		if !utf8.ValidString(a) || !utf8.ValidString(b) {
			return // the core refuses them
		}
		name, ok := sessions.Unescape(escape(a), escape)
		if long := strings.HasPrefix(escape(a), sessions.HashMark); ok == (a == "" || long) || ok && name != a {
			t.Errorf("%q is listed as %q", a, name)
		}
		if (a == b) != (escape(a) == escape(b)) {
			t.Errorf("%q is %q and %q is %q", a, escape(a), b, escape(b))
		}
		for _, qualified := range []string{"p:" + a, strings.ReplaceAll(a, ":", "") + ":" + b, a} {
			rest, ours := strings.CutPrefix(nodeOf(parentOf("/root", qualified), strings.Repeat("0a", sessions.OwnerLen/2)), "/root/")
			levels := strings.Split(rest, "/")
			if !ours || len(levels) != 3 || levels[0] == "zookeeper" || path.Clean(rest) != rest || len(rest) > 3*sessions.LongName {
				t.Errorf("%q stands at /root/%q", qualified, rest)
			}
			for _, r := range rest {
				if r != '/' && r != '%' && !plain(r) {
					t.Errorf("%q has %q in it, which the server refuses", rest, r)
				}
			}
		}
	})
}

// What others may have put beside our nodes: only what is built as ours is taken for one, and it is
// what it says.
func FuzzParseContender(f *testing.F) {
	owner := strings.Repeat("0a", sessions.OwnerLen/2)
	for _, name := range []string{
		"", "note", nodePrefix + owner, nodePrefix + owner + nodeMiddle + "0000000012", nodePrefix + owner + nodeMiddle + "-2147483648",
		nodePrefix + owner + nodeMiddle + "+000000012", nodePrefix + owner + nodeMiddle + "00000000012", nodePrefix + owner + nodeMiddle + "-0000000000",
		nodePrefix + owner + nodeMiddle + "2147483648", "_c_" + owner + "-read-0000000012", nodePrefix + strings.ToUpper(owner) + nodeMiddle + "0000000012",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		c, ok := parseContender(name)
		if want := fmt.Sprintf("%s%s%s%010d", nodePrefix, c.owner, nodeMiddle, c.number); ok && want != name {
			t.Errorf("%q is taken for %q", name, want)
		}
		if (ok && c.counts()) != slices.Contains(inQueue([]string{name}), c) || ok != slices.Contains(contenders([]string{name}), c) {
			t.Errorf("%q is in the queue, or is not, depending on who asks", name)
		}
		mine := fmt.Sprint(nodePrefix, strings.Repeat("f", sessions.OwnerLen), nodeMiddle, lastNumber)
		own, _ := parseContender(mine)
		if before := ahead(inQueue([]string{mine, name}), own, false).name; before != "" && before != name {
			t.Errorf("%q is ahead, of %q", before, name)
		}
	})
}

func TestAhead(t *testing.T) {
	name := func(owner byte, number int32) string {
		return fmt.Sprintf("_c_%s-lock-%010d", strings.Repeat(string(owner), sessions.OwnerLen), number)
	}
	queue := []string{name('d', 7), name('c', 12), name('b', lastNumber-1), name('a', lastNumber), "note", "lock-0000000000"}
	late := []string{name('1', lastNumber+1), name('0', math.MaxInt32), name('2', math.MaxInt32), name('3', math.MinInt32), name('4', -1)}
	all := append(slices.Clone(queue), late...)
	slices.Sort(all)
	before := map[byte]string{'d': "", 'c': name('d', 7), 'b': name('c', 12), 'a': name('b', lastNumber-1)}
	for owner, want := range before {
		i := slices.IndexFunc(inQueue(all), func(c contender) bool { return c.owner == strings.Repeat(string(owner), sessions.OwnerLen) })
		require.GreaterOrEqual(t, i, 0)
		assert.Equal(t, want, ahead(inQueue(all), inQueue(all)[i], false).name, string(owner))
	}
	var names []string
	for _, c := range slices.SortedFunc(slices.Values(inQueue(all)), compare) {
		names = append(names, c.name)
	}
	assert.Equal(t, queue[:4], names)
	assert.Len(t, contenders(all), 9, "those without a place are to be removed, too")
}

func FuzzOpen(f *testing.F) {
	fuzzurl.Run(f, plainScheme, open, "h1:1,[::1]/apps/shop?dial_timeout=1s&tick=2s&acl=creator", "h/a//b?acl=world", "h?tls_ca=x")
}

func FuzzOpen_tls(f *testing.F) {
	fuzzurl.Run(f, plainScheme+"s", open, "h?tls_ca=ca.pem&tls_cert=c.pem&tls_key=k.pem&tls_server_name=n", "h/a?tls_skip_verify=true")
}
