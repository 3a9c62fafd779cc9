// Package breaks lists the ways in which locks broke, of other libraries and of this module, and
// shows each of them again.
package breaks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/go-locker/locker/bench/thirdparty"
)

// Break is a way in which a lock broke.
type Break struct {
	Name  string // unique: what make show is told
	Lock  string // a library, or what of this module
	What  string
	In    string   // the version that shows it; of this module, the commit before the one that fixed it
	Since string   // the oldest version that was tried, and shows it; empty: no other was
	By    string   // who found it
	Looks []string // scenarios of the suite, and tests by package, that look for it

	shows interface{ show(s *session) error }
}

// All returns those that can be shown again: first this module's own, the latest first.
func All() []Break {
	var all []Break
	for _, o := range own {
		all = append(all, o.entry())
	}
	for _, l := range thirdparty.All() {
		for _, f := range l.Findings {
			b := third{l, f}.entry()
			if !slices.ContainsFunc(all, func(other Break) bool { return other.Name == b.Name }) { // variants of a library share findings
				all = append(all, b)
			}
		}
	}
	return all
}

// Find returns the break with a name, or the only one whose name begins so.
func Find(name string) (Break, error) {
	var names []string
	var found Break
	for _, b := range All() {
		if b.Name == name {
			return b, nil
		}
		if strings.HasPrefix(b.Name, name) {
			found, names = b, append(names, b.Name)
		}
	}
	switch len(names) {
	case 0:
		return Break{}, fmt.Errorf("no break is called %q: docs/known-breaks.md lists them", name)
	case 1:
		return found, nil
	}
	return Break{}, fmt.Errorf("%q is ambiguous: %s", name, strings.Join(names, ", "))
}

// Command returns what shows b again.
func (b Break) Command() string { return "make show BREAK=" + b.Name }

// oldest is the oldest version of a library that shows a break, of those that can be had and that
// its tests can be compiled with; by the name of the break, or of the library.
var oldest = map[string]string{
	"redsync":                       "v4.12.1",
	"redsync-lost-reply-says-taken": "v4.13.0",
}

// third is a finding of another library.
type third struct {
	library thirdparty.Library
	finding thirdparty.Finding
}

func (t third) entry() Break {
	name := nameOf(t.finding.Repro)
	looks := slices.Concat(t.finding.Scenarios, t.finding.Sometimes)
	by := "the suite"
	if len(looks) == 0 {
		by = "measuring and reading"
	}
	lock, _, _ := strings.Cut(t.library.Name, ",")
	return Break{
		Name: name, Lock: lock, What: t.finding.Cause, In: t.library.Release, Since: cmp.Or(oldest[name], oldest[lock]), By: by,
		Looks: slices.Concat(looks, guards[name]), shows: t,
	}
}

// nameOf makes "redsync-renews-nothing" of "TestRepro_redsync_renewsNothing".
func nameOf(test string) string {
	var b strings.Builder
	for _, r := range strings.TrimPrefix(test, "TestRepro_") {
		switch {
		case r == '_':
			b.WriteByte('-')
		case unicode.IsUpper(r):
			b.WriteByte('-')
			b.WriteRune(unicode.ToLower(r))
		default:
			b.WriteRune(r)
		}
	}
	return strings.ReplaceAll(b.String(), "-t-t-l", "-ttl")
}

// ours is a bug of this module, which the repository's history keeps.
type ours struct {
	name, lock, what, by string // by: empty if the commit does not say
	fix                  string // the commit that fixed it
	dir, test            string // at that commit: what fails without it
	looks                []string
	edits                []edit // of the test, which goes by the words of another server
}

func (o ours) entry() Break {
	looks := o.looks
	if looks == nil {
		looks = []string{strings.TrimPrefix(strings.TrimPrefix(o.dir, "internal/test/"), "internal/") + "." + o.test}
	}
	return Break{Name: o.name, Lock: o.lock, What: o.what, In: "before " + o.fix, By: cmp.Or(o.by, "not recorded"), Looks: looks, shows: o}
}
