package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Results are the raw figures of a run.
type Results struct {
	At         time.Time    `json:"at"`
	Go         string       `json:"go"`
	OS         string       `json:"os"`
	Processors int          `json:"processors"`
	Redis      string       `json:"redis"`
	Libraries  []LibraryRow `json:"libraries"`
	Rounds     int          `json:"rounds"`
	Seconds    float64      `json:"secondsPerCell"`

	Contended []Contended `json:"contended"`
	Handovers []Handover  `json:"handovers"`
	Idle      []Idle      `json:"idle"`
}

// LibraryRow says which version of a library was measured, and how it was set up.
type LibraryRow struct {
	Name     string `json:"name"`
	Module   string `json:"module"`
	Version  string `json:"version"`
	Settings string `json:"settings"`
}

func newResults(s *server, o options) *Results {
	r := &Results{
		At: time.Now().UTC(), Go: runtime.Version(), OS: runtime.GOOS + "/" + runtime.GOARCH,
		Processors: runtime.GOMAXPROCS(0), Redis: s.version, Rounds: o.rounds, Seconds: o.duration.Seconds(),
	}
	versions := moduleVersions()
	for _, l := range o.libraries {
		r.Libraries = append(r.Libraries, LibraryRow{l.name, l.module, versions[l.module], l.settings})
	}
	return r
}

func moduleVersions() map[string]string {
	versions := make(map[string]string)
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return versions
	}
	for _, m := range info.Deps {
		versions[m.Path] = m.Version
		if m.Replace != nil {
			versions[m.Path] = "this tree"
		}
	}
	return versions
}

func (r *Results) writeJSON(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

func (r *Results) print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Redis %s, %s, %s, %d processors.\n\n", r.Redis, r.Go, r.OS, r.Processors)
	libs := newTable("library", "version", "settings")
	for _, l := range r.Libraries {
		libs.AppendRow(table.Row{l.Name, l.Version, l.Settings})
	}
	fmt.Fprintf(&b, "%s\n", libs.RenderMarkdown())
	if len(r.Contended) > 0 {
		r.printContended(&b)
	}
	if len(r.Handovers) > 0 {
		r.printHandovers(&b)
	}
	if len(r.Idle) > 0 {
		r.printIdle(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Results) printContended(b *strings.Builder) {
	fmt.Fprintf(b, `
## One name

Hold %v, think %v, %g s a cell. Rounds: %d; median (lowest–highest). Sent: commands that clients sent; run:
all that the server counted, those that scripts ran among them; µs: the server's own time; each for an
acquisition. The longest wait includes those that went on at the end. Starved: waiters without an
acquisition. Errors and overlaps (two holders at once) are sums over all rounds.

`, hold, think, r.Seconds, r.Rounds)
	t := newTable("waiters", "library", "acquisitions/s", "wait p50 ms", "p99 ms", "longest ms",
		"sent", "run", "µs", "fairness", "starved", "errors", "overlaps")
	for _, group := range grouped(r.Contended, func(c Contended) string { return fmt.Sprint(c.Waiters, c.Library) }) {
		over := func(f func(c *Contended) float64) spread { return across(group, f) }
		var errs, overlaps int64
		for _, c := range group {
			errs, overlaps = errs+int64(c.Errors), overlaps+c.Overlaps
		}
		t.AppendRow(table.Row{
			group[0].Waiters, group[0].Library,
			over((*Contended).rate).text(0),
			over(func(c *Contended) float64 { return c.WaitP50Ms }).text(1),
			over(func(c *Contended) float64 { return c.WaitP99Ms }).text(0),
			over(func(c *Contended) float64 { return c.WaitMaxMs }).text(0),
			figure(over(func(c *Contended) float64 { return c.each(float64(c.Load.Sent)) }).median, 1),
			figure(over(func(c *Contended) float64 { return c.each(float64(c.Load.Run)) }).median, 1),
			figure(over(func(c *Contended) float64 { return c.each(c.Load.Microseconds) }).median, 0),
			figure(over(func(c *Contended) float64 { return c.Jain }).median, 2),
			figure(over(func(c *Contended) float64 { return float64(c.Starved) }).median, 0),
			errs, overlaps,
		})
	}
	fmt.Fprintf(b, "%s\n", t.RenderMarkdown())
}

func (r *Results) printHandovers(b *strings.Builder) {
	fmt.Fprintf(b, `
## Hand-over

From the call of Unlock until the Lock of one of %d who wait has returned, hold %v, and round trips of PING
meanwhile. Rounds: %d; median (lowest–highest); samples, errors and overlaps are sums.

`, r.Handovers[0].Waiters, handoverHold, r.Rounds)
	t := newTable("library", "p50 µs", "p99 µs", "PING p50 µs", "PING p99 µs", "p50 in PINGs", "samples", "errors", "overlaps")
	for _, group := range grouped(r.Handovers, func(h Handover) string { return h.Library }) {
		over := func(f func(h *Handover) float64) spread { return across(group, f) }
		var samples, errs int
		var overlaps int64
		for _, h := range group {
			samples, errs, overlaps = samples+h.Samples, errs+h.Errors, overlaps+h.Overlaps
		}
		t.AppendRow(table.Row{
			group[0].Library,
			over(func(h *Handover) float64 { return h.P50Us }).text(0),
			over(func(h *Handover) float64 { return h.P99Us }).text(0),
			over(func(h *Handover) float64 { return h.PingP50Us }).text(0),
			over(func(h *Handover) float64 { return h.PingP99Us }).text(0),
			figure(over(func(h *Handover) float64 { return h.P50Us / max(h.PingP50Us, 1) }).median, 1),
			samples, errs, overlaps,
		})
	}
	fmt.Fprintf(b, "%s\n", t.RenderMarkdown())
}

func (r *Results) printIdle(b *strings.Builder) {
	first := r.Idle[0]
	fmt.Fprintf(b, `
## Nothing happens

%d waiters, each on a client of its own, behind one hold with a TTL of %v. The first %.1f s, in which all
connect, then %.1f s of waiting. Sent and run as in the first table.

`, first.Waiters, ttl, first.WarmUp.Seconds, first.Waiting.Seconds)
	t := newTable("library", "sent at first", "run at first", "sent then", "run then",
		"sent/s", "run/s", "server µs/s", "overlaps")
	for _, i := range r.Idle {
		perSecond := func(n float64) string { return figure(n/i.Waiting.Seconds, 1) }
		t.AppendRow(table.Row{
			i.Library, i.WarmUp.Sent, i.WarmUp.Run, i.Waiting.Sent, i.Waiting.Run,
			perSecond(float64(i.Waiting.Sent)), perSecond(float64(i.Waiting.Run)),
			perSecond(i.Waiting.Microseconds), i.Overlaps,
		})
	}
	fmt.Fprintf(b, "%s\n", t.RenderMarkdown())
}

// newTable aligns figures to the right and words to the left.
func newTable(columns ...string) table.Writer {
	t := table.NewWriter()
	header := make(table.Row, len(columns))
	configs := make([]table.ColumnConfig, len(columns))
	for i, c := range columns {
		align := text.AlignRight
		switch c {
		case "library", "version", "settings":
			align = text.AlignLeft
		}
		header[i] = c
		configs[i] = table.ColumnConfig{Number: i + 1, Align: align, AlignHeader: align}
	}
	t.AppendHeader(header)
	t.SetColumnConfigs(configs)
	t.Style().Format.Header = text.FormatDefault
	return t
}

// grouped puts together what has the same key, in the order in which keys first appear.
func grouped[T any](all []T, key func(T) string) [][]T {
	var groups [][]T
	index := make(map[string]int)
	for _, one := range all {
		k := key(one)
		i, known := index[k]
		if !known {
			i = len(groups)
			index[k] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], one)
	}
	return groups
}

func across[T any](group []T, value func(*T) float64) spread {
	values := make([]float64, len(group))
	for i := range group {
		values[i] = value(&group[i])
	}
	return spreadOf(values)
}

func (s spread) text(decimals int) string {
	median, low, high := figure(s.median, decimals), figure(s.low, decimals), figure(s.high, decimals)
	if low == high {
		return median
	}
	return fmt.Sprintf("%s (%s–%s)", median, low, high)
}

func figure(f float64, decimals int) string { return fmt.Sprintf("%.*f", decimals, f) }
