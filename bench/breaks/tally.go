package breaks

import "slices"

// Tally is how many locks that are known to be broken the suite has found so.
type Tally struct {
	Judged, Found   int
	Covered         int     // of Judged: those whose promise the contract of a Locker has
	FoundOfCovered  int     // of those
	Median, Longest float64 // seconds, from the start of the suite until it was found
}

// Decided reports whether the suite found the break, or came to its end and did not.
func (j Judgement) Decided() bool { return j.Failed == "" && (j.Found != "" || j.Whole) }

// TallyOf counts those for which counts is true, and that are decided.
func TallyOf(all []Judgement, counts func(Judgement) bool) (t Tally) {
	var times []float64
	for _, j := range all {
		if !j.Decided() || !counts(j) {
			continue
		}
		t.Judged++
		covered := Beyond(j.Name) == ""
		if covered {
			t.Covered++
		}
		if j.Found == "" {
			continue
		}
		t.Found++
		times = append(times, j.After)
		if covered {
			t.FoundOfCovered++
		}
	}
	if slices.Sort(times); len(times) > 0 {
		n := len(times)
		t.Median, t.Longest = times[(n-1)/2], times[n-1] // the lower of two: half was found by then
	}
	return t
}

// IsOwn reports whether a judgement is of a break of this module.
func (j Judgement) IsOwn() bool {
	return slices.ContainsFunc(own, func(o ours) bool { return o.name == j.Name })
}
