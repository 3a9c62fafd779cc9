package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/go-locker/locker/conformance"
)

// readKnown reads a file of known deviations: why, by the name of a scenario. Empty lines and those
// that begin with # say nothing.
func readKnown(file string) (map[string]string, error) {
	if file == "" {
		return nil, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, usagef("--known: %w", err)
	}
	defer f.Close()
	known, errs := map[string]string{}, []error(nil)
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, why, ok := strings.Cut(line, ":")
		name, why = strings.TrimSpace(name), strings.TrimSpace(why)
		switch {
		case !ok || why == "":
			errs = append(errs, fmt.Errorf("line %d: want the name of a scenario, a colon, and the reason", n))
		case !slices.ContainsFunc(conformance.Scenarios(), func(s conformance.Scenario) bool { return s.Name == name }):
			errs = append(errs, fmt.Errorf("line %d: no scenario is called %q", n, name))
		default:
			known[name] = why
		}
	}
	if err := errors.Join(append(errs, lines.Err())...); err != nil {
		return nil, usagef("--known: %s: %w", file, err)
	}
	return known, nil
}
