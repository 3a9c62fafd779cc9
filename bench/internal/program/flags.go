package program

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Counts is a flag: numbers above 0 with commas between.
type Counts []int

// String is what Set takes.
func (c *Counts) String() string {
	all := make([]string, len(*c))
	for i, n := range *c {
		all[i] = strconv.Itoa(n)
	}
	return strings.Join(all, ",")
}

// Set replaces the numbers, by none if list is empty.
func (c *Counts) Set(list string) error {
	*c = nil
	for _, s := range fields(list) {
		n, err := strconv.Atoi(s)
		if err != nil {
			return fmt.Errorf("%q is no number", s)
		}
		if n < 1 {
			return fmt.Errorf("%d is less than 1", n)
		}
		*c = append(*c, n)
	}
	return nil
}

// Parts is a flag: which of several things to measure.
type Parts struct{ known, chosen []string }

// Only adds the flag -only to f, by default all of known.
func Only(f *flag.FlagSet, known ...string) *Parts {
	p := &Parts{known, known}
	f.Var(p, "only", "what to measure of them")
	return p
}

// Chosen are those to be measured, one after the other.
func (p *Parts) Chosen() []string { return p.chosen }

// String is what Set takes.
func (p *Parts) String() string { return strings.Join(p.chosen, ",") }

// Set chooses some.
func (p *Parts) Set(list string) error {
	p.chosen = fields(list)
	if len(p.chosen) == 0 {
		return fmt.Errorf("nothing of %s", strings.Join(p.known, ","))
	}
	for _, part := range p.chosen {
		if !slices.Contains(p.known, part) {
			return fmt.Errorf("%q is none of %s", part, strings.Join(p.known, ","))
		}
	}
	return nil
}

func fields(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}
