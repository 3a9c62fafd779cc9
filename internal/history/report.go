package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Report says what a person has to know of a history that no lock can have.
func (h *History) Report(j Judgement) string {
	var b strings.Builder
	fmt.Fprintf(&b, "there were %d operations. These, on one name, fit no order that one lock allows:", j.Operations)
	for _, line := range h.lines(j.witness) {
		b.WriteString("\n\t" + line)
	}
	for _, f := range h.Faults {
		if from, to := span(j.witness); f.From <= to && f.To >= from {
			fmt.Fprintf(&b, "\n\t(%s to %s: %s)", at(f.From), at(f.To), f.What)
		}
	}
	return b.String()
}

func at(t int64) string { return fmt.Sprintf("%.4f s", time.Duration(t).Seconds()) }

// lines are the operations of holds, in the order of their calls.
func (h *History) lines(holds []ops) []string {
	all := slices.Concat(holds...)
	slices.SortStableFunc(all, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	const enough = 40
	var lines []string
	for i, op := range all {
		if i == enough {
			return append(lines, fmt.Sprintf("and %d more", len(all)-i))
		}
		lines = append(lines, fmt.Sprintf("%s to %s: %s, %s",
			at(op.Call), at(op.Return), h.Clients[op.ClientId].Who, strings.ReplaceAll(op.Input.(move).text, "\n", ", ")))
	}
	return lines
}

// span is from the first call to the last return.
func span(holds []ops) (from, to int64) {
	for i, op := range slices.Concat(holds...) {
		if i == 0 {
			from = op.Call
		}
		from, to = min(from, op.Call), max(to, op.Return)
	}
	return from, to
}

// drawModel writes the page of the checker. A history of thousands of operations is no sight: it
// shows those about the witness.
func (h *History) drawModel(j Judgement, page string) error {
	const before, after = 30, 10
	place := func(s ops) int {
		return slices.IndexFunc(j.holds, func(o ops) bool { return o[0].Input.(move).hold == s[0].Input.(move).hold })
	}
	first, last := place(j.witness[0]), place(j.witness[len(j.witness)-1])
	about := slices.Clone(j.holds[max(0, first-before):min(len(j.holds), first+before)])
	if last > first+before {
		about = append(about, j.holds[max(last-before, first+before):min(len(j.holds), last+after)]...)
	}
	_, info := porcupine.CheckOperationsVerbose(model, slices.Concat(about...), CheckTime)
	info.AddAnnotations(h.remarks(span(about)))
	return porcupine.VisualizePath(model, info, page)
}

// remarks are what is no operation of the model: faults, and Locks of which nobody knows what they
// did.
func (h *History) remarks(from, to int64) []porcupine.Annotation {
	var all []porcupine.Annotation
	for _, f := range h.Faults {
		if f.From <= to && f.To >= from {
			all = append(all, porcupine.Annotation{Tag: "faults", Start: f.From, End: f.To, Description: f.What})
		}
	}
	for _, e := range h.Events {
		if e.Err == OtherErr && e.Op != OpUnlock && e.Call <= to && e.Return >= from {
			all = append(all, porcupine.Annotation{
				Tag: h.Clients[e.Client].Who, Start: e.Call, End: e.Return, Description: e.Op + ": error", Details: e.Text,
			})
		}
	}
	return all
}
