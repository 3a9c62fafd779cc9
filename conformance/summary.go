package conformance

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// results are those of a Run.
type results struct {
	mu  sync.Mutex
	all []Result
}

func (r *results) add(one Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, one)
}

// summary counts what came of the scenarios, and lists what was kept, but not in each trial, and what is known to be broken.
func (r *results) summary(order []Scenario) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	count, doubts := map[Outcome]int{}, 0
	var list strings.Builder
	for _, s := range order {
		i := slices.IndexFunc(r.all, func(one Result) bool { return one.Scenario == s.Name })
		if i < 0 {
			continue // -run has left it out, or the harness has ended it
		}
		one := r.all[i]
		count[one.Outcome]++
		switch says, _, _ := strings.Cut(one.String(), "\n"); {
		case one.Outcome == Kept && one.Doubts > 0:
			doubts++
			fmt.Fprintf(&list, "\n  %s: %s", s.Name, says)
		case one.Outcome == Unseen:
			fmt.Fprintf(&list, "\n  %s: %s (not seen this time)", s.Name, says)
		case one.Outcome == Known:
			fmt.Fprintf(&list, "\n  %s: %s", s.Name, says)
		}
	}
	return fmt.Sprintf("%d promises kept%s%s%s%s%s%s", count[Kept],
		unlessNone(", %d of them not in each trial", doubts),
		unlessNone("; %d broken", count[Broken]+count[Stale]),
		unlessNone("; %d undecided", count[Undecided]),
		unlessNone("; known deviations: %d", count[Known]),
		unlessNone("; known deviations that were not seen this time: %d", count[Unseen]),
		unlessNone("; %d skipped", count[Skipped])) + list.String()
}

func unlessNone(format string, n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(format, n)
}
