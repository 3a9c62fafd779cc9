package redlock

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/go-locker/locker/internal/test/testwait"
)

// ahead is what the nodes have accepted, so that a majority has to raise what the first grants.
var ahead = [exNodes]uint64{1, ourToken + 2, ourToken + 2}

func TestHold_inEveryOrderOfMessages(t *testing.T) {
	testwait.NotUnderRace(t)
	cases := []holdExploration{
		{name: "a node forgets", extends: 2, others: 1, budget: budget{forgets: 1}},
		{name: "a node forgets, tokens differ", extends: 2, others: 1, last: ahead, budget: budget{forgets: 1}},
		{name: "a node forgets, an answer is lost", extends: 2, others: 1, budget: budget{forgets: 1, losses: 1}},
		{name: "a lock expires, a call is given up", extends: 2, others: 1, budget: budget{expires: 1, misses: 1}},
		{name: "a lock expires, a request is lost", extends: 2, others: 1, budget: budget{expires: 1, drops: 1}},
	}
	if testwait.Exhaustive() {
		cases = append(cases,
			holdExploration{name: "a node forgets, three Extends", extends: 3, others: 1, budget: budget{forgets: 1}},
			holdExploration{name: "two forget, two others", extends: 2, others: 2, budget: budget{forgets: 2}},
			holdExploration{name: "a node forgets, a call is given up", extends: 2, others: 1, budget: budget{forgets: 1, misses: 1}},
			holdExploration{name: "a node forgets, a request is lost", extends: 2, others: 1, budget: budget{forgets: 1, drops: 1}},
			holdExploration{name: "a node forgets, an answer is lost, tokens differ", extends: 2, others: 1, last: ahead, budget: budget{forgets: 1, losses: 1}},
			holdExploration{name: "a node forgets, a request is lost, tokens differ", extends: 2, others: 1, last: ahead, budget: budget{forgets: 1, drops: 1}},
		)
	}
	for _, x := range cases {
		t.Run(x.name, func(t *testing.T) {
			x.explore(t)
			t.Logf("%d states", len(x.seen))
			assert.Empty(t, x.violations)
		})
	}
}

func TestHold_breaksWhenAPartOfTheRuleIsLeftOut(t *testing.T) {
	for _, c := range []struct {
		name string
		flaw flaw
		want string
	}{
		{"a grant after the majority's counts in full", flaw{lateGrantsCount: true}, unnoticed},
		{"a node counts in full in the Extend in which it joins", flaw{joinersCount: true}, unnoticed},
		{"a node that joins is as good as any", flaw{lacksIgnored: true}, unnoticed},
		{"a node that joins keeps a smaller token", flaw{notRaised: true}, smaller},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := holdExploration{extends: 2, others: 1, last: ahead, budget: budget{forgets: 1}, flaw: c.flaw}
			x.explore(t)
			t.Logf("%d states until the first violation", len(x.seen))
			assert.Contains(t, x.violations, c.want)
		})
	}
}
