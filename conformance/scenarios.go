package conformance

import (
	"slices"

	"github.com/go-locker/locker/conformance/internal/scenario"
	"github.com/go-locker/locker/conformance/internal/scenario/exclusion"
	"github.com/go-locker/locker/conformance/internal/scenario/expiry"
	"github.com/go-locker/locker/conformance/internal/scenario/histories"
	"github.com/go-locker/locker/conformance/internal/scenario/late"
	"github.com/go-locker/locker/conformance/internal/scenario/names"
	"github.com/go-locker/locker/conformance/internal/scenario/network"
	"github.com/go-locker/locker/conformance/internal/scenario/outage"
	"github.com/go-locker/locker/conformance/internal/scenario/readwrite"
	"github.com/go-locker/locker/conformance/internal/scenario/token"
	"github.com/go-locker/locker/conformance/internal/scenario/waiting"
)

// How the suite is built. A package imports packages in rows below its own, and no topic another:
//
//	conformance                       Harness, Faults, Run, Examine, Result: all that is public
//	internal/scenario/<topic>         a topic's scenarios: names, promises, needs and bodies
//	internal/scenario                 Row, and the trials of one scenario
//	internal/fault, contention        faults of a party or the backend; many parties at once
//	internal/party                    Env, a trial; Party, a Locker with its part in the story
//	internal/need, harness, source    what a scenario needs of a Harness; where promises come from
//	internal/engine, remote, power    verdicts; Lockers in other processes; optional methods

// Scenarios returns all scenarios, in the order of the documentation.
func Scenarios() []Scenario {
	var all []Scenario
	for _, topic := range [][]scenario.Row{
		exclusion.Rows, exclusion.Try, waiting.Context, waiting.Cancel, outage.Faults,
		waiting.Rows, waiting.Wanted, expiry.Rows, expiry.Extend, expiry.Unlock, expiry.Reuse,
		token.Rows, names.Rows, exclusion.Sharing, expiry.Loss, outage.Silence, expiry.Renewal,
		outage.Rows, network.Replies, network.Rows, late.Rows, outage.Processes,
		readwrite.Rows, readwrite.Queue, histories.ReadWrite,
		readwrite.Readers(slices.Concat(
			network.Replies, late.Rows, network.Rows, outage.Silence, outage.Processes)),
		histories.Rows, token.Counter,
	} {
		for _, r := range topic {
			all = append(all, scenarioOf(r))
		}
	}
	return all
}

func scenarioOf(r scenario.Row) Scenario {
	s := Scenario{
		Name: r.Name, Promise: r.Promise, Deterministic: !r.Chance, Guarantee: r.Shows, Condition: r.Condition, row: r,
		check: func(t TB, h Harness) error {
			if r.HeedsPromises(h.inner(r.Name)) {
				h = h.promising(t)
			}
			return r.Check(t, h.inner(r.Name))
		},
	}
	for _, n := range r.Needs {
		if n.Why == "" {
			s.Needs = append(s.Needs, n.Name)
		}
	}
	return s
}
