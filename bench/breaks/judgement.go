package breaks

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
)

// Judgement is what the usual suite has seen of a lock that is known to be broken, when nobody had
// told it how.
type Judgement struct {
	Name   string  `json:"name"`             // of the break, or of a Release
	Suite  string  `json:"suite,omitempty"`  // the test that put the lock through it
	Way    Way     `json:"way,omitempty"`    // to the broken code
	Commit string  `json:"commit,omitempty"` // whose suite it was
	Found  string  `json:"found,omitempty"`  // the first scenario that saw it; empty: none did
	After  float64 `json:"after,omitempty"`  // in seconds, from the start of the suite
	Seen   string  `json:"seen,omitempty"`   // by that scenario
	Again  int     `json:"again,omitempty"`  // of three times by itself it saw it so often
	Took   float64 `json:"took,omitempty"`   // the suite, in seconds, until it was ended
	Whole  bool    `json:"whole,omitempty"`  // it came to its end by itself
	// Doubtful are scenarios that failed in the suite, and then either passed by themselves each
	// time, or failed with the fix too. They do not count.
	Doubtful []string `json:"doubtful,omitempty"`
	Failed   string   `json:"failed,omitempty"` // why there is no judgement
}

// Way is how the broken code was had.
type Way string

// The ways.
const (
	Reversed Way = "reversed" // git takes the fix back in the code of today
	ByHand   Way = "by hand"  // a person has taken the fix back in the code of today
	Before   Way = "before"   // the commit before the fix, and the suite of that commit
	Old      Way = "old"      // an old version of another library, and the suite of today
)

// JudgementsFile is the file of judgements, in docs.
const JudgementsFile = "known-breaks.json"

// String returns the judgement in a line.
func (j Judgement) String() string {
	switch {
	case j.Failed != "":
		return "not judged: " + j.Failed
	case j.Found == "":
		return fmt.Sprintf("not found: %s, %s, %.0f s, whole: %v, doubtful: %q", j.Suite, j.Way, j.Took, j.Whole, j.Doubtful)
	default:
		return fmt.Sprintf("found after %.1f s, by %q (%d of 3 by itself), %s, %s: %s", j.After, j.Found, j.Again, j.Suite, j.Way, j.Seen)
	}
}

// ReadJudgements reads the file of judgements. If it is not there nothing was judged.
func ReadJudgements(file string) ([]Judgement, error) {
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var all []Judgement
	for in := json.NewDecoder(bufio.NewReader(f)); in.More(); {
		var j Judgement
		if err := in.Decode(&j); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", file, len(all)+1, err)
		}
		all = append(all, j)
	}
	return all, nil
}

// SaveJudgement adds a judgement to the file, or renews it, and leaves out those of what is judged
// no longer. The order is that of Judged.
func SaveJudgement(file string, j Judgement) error {
	all, err := ReadJudgements(file)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	out := json.NewEncoder(&b)
	out.SetEscapeHTML(false)
	for _, name := range Judged() {
		i := slices.IndexFunc(all, func(old Judgement) bool { return old.Name == name })
		one := j
		switch {
		case name == j.Name:
		case i < 0:
			continue
		default:
			one = all[i]
		}
		if err := out.Encode(one); err != nil {
			return err
		}
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}
