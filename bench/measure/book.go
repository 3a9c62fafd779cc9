package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"image/color"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// figures are what one library came to in one round, by the names of columns.
type figures map[string]float64

// columns are those of each part's table on the page, in their order; the ratio is of the first.
// The file has more. Those in sums are added up over the rounds, of the others the table has the
// median.
var columns = map[string][]string{
	"pairs": {"pair µs", "requests", "server µs", "cpu µs", "allocations"},
	"apart": {"pairs/s", "server µs", "cpu µs", "allocations", "connections", "errors"},
	"contended": {
		"acquisitions/s", "wait p50 ms", "longest ms", "requests", "server µs",
		"connections", "errors", "overlaps",
	},
	"idle": {"requests/s", "run/s", "server µs/s", "cpu µs/s", "server bytes"},
	"held": {
		"requests", "server µs", "cpu µs", "goroutines", "heap bytes", "server bytes", "lost",
	},
	"readers": {
		"holds/s", "write p50 ms", "longest write ms", "longest read ms", "cpu µs", "errors",
	},
	"names": {"bytes", "server µs"},
}

var sums = []string{"errors", "overlaps", "lost"}

type (
	// book is all that was measured, as it is written to the file.
	book struct {
		Tables []*table `json:"tables"`
	}

	// table is what one part came to.
	table struct {
		Subject    string    `json:"subject"`
		What       string    `json:"what"`
		Note       string    `json:"note,omitempty"`
		At         time.Time `json:"at"`
		Server     string    `json:"server"`
		Go         string    `json:"go"`
		Processors int       `json:"processors"`
		Libraries  []version `json:"libraries"`
		Rows       []*row    `json:"rows"`
	}

	version struct {
		Name     string `json:"name"`
		Version  string `json:"version"`
		Settings string `json:"settings"`
	}

	// row has a value for each round.
	row struct {
		Cell    string               `json:"cell"`
		Library string               `json:"library"`
		Figures map[string][]float64 `json:"figures"`
	}
)

func load(file string) (*book, error) {
	b := &book{}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err == nil {
		err = json.Unmarshal(text, b)
	}
	return b, err
}

// save writes a line for each table, library and row: the encoder would indent figures too.
func (b *book) save(file string) error {
	text, err := json.Marshal(b)
	if err != nil {
		return err
	}
	for _, begins := range []string{`{"subject":`, `{"name":`, `{"cell":`} {
		text = bytes.ReplaceAll(text, []byte(begins), []byte("\n"+begins))
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// fresh replaces the table of a part by an empty one.
func (b *book) fresh(subject, what, note, server string, libraries []library) *table {
	t := &table{
		Subject: subject, What: what, Note: note, Server: server,
		At: time.Now().UTC().Truncate(time.Second),
		Go: runtime.Version(), Processors: runtime.GOMAXPROCS(0),
	}
	modules := make(map[string]string)
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			modules[m.Path] = m.Version
			if m.Replace != nil {
				modules[m.Path] = "this tree"
			}
		}
	}
	for _, l := range libraries {
		t.Libraries = append(t.Libraries, version{l.name, modules[l.module], l.settings})
	}
	same := func(o *table) bool { return o.Subject == subject && o.What == what && o.Note == note }
	if i := slices.IndexFunc(b.Tables, same); i >= 0 {
		b.Tables[i] = t
	} else {
		b.Tables = append(b.Tables, t)
	}
	return t
}

func (t *table) add(cell, library string, f figures) {
	i := slices.IndexFunc(t.Rows, func(r *row) bool { return r.Cell == cell && r.Library == library })
	if i < 0 {
		i = len(t.Rows)
		t.Rows = append(t.Rows, &row{cell, library, map[string][]float64{}})
	}
	for name, v := range f {
		v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64) // as it is written to the file
		t.Rows[i].Figures[name] = append(t.Rows[i].Figures[name], v)
	}
}

// text has the first column, for who watches.
func (f figures) text(what string) string {
	first := columns[what][0]
	return fmt.Sprintf("%.4g %s", f[first], first)
}

// print returns the page.
func (b *book) print() string {
	var out strings.Builder
	out.WriteString(`# Measurements

Written by ` + "`make bench`" + ` from [bench.json](../bench.json), which has every round and the settings; [what they mean](../performance.md). Each figure
is the median of the rounds, the first with (lowest–highest); errors, and overlaps (two holders at once), are sums. *Ratio*: to the library with 1.00, in the same
round. *Requests* (to Redis), *server µs* (the time of scripts and commands), *cpu µs* (that of the servers' processes) and
*allocations* are for one pair of Lock and Unlock, or one acquisition.
`)
	said := map[string]bool{} // what parts are about: once, for those of several subjects
	for _, s := range subjects {
		notes := []string{""}
		for _, t := range b.Tables {
			if t.Subject == s.name && !slices.Contains(notes, t.Note) {
				notes = append(notes, t.Note)
			}
		}
		for _, note := range notes {
			head := ""
			for _, p := range s.parts {
				i := slices.IndexFunc(b.Tables, func(t *table) bool {
					return t.Subject == s.name && t.What == p.name && t.Note == note
				})
				if i < 0 {
					continue
				}
				t := b.Tables[i]
				if head == "" {
					fmt.Fprintf(&out, "\n## %s\n", noted(s.title, note))
				}
				if this := t.head(); this != head {
					head = this
					fmt.Fprintf(&out, "\n%s\n", head)
				}
				fmt.Fprintf(&out, "\n### %s\n", noted(s.title+": "+p.name, note))
				if !said[p.about] {
					said[p.about] = true
					fmt.Fprintf(&out, "\n%s\n", p.about)
				}
				t.print(&out, p.baseline)
			}
		}
	}
	return out.String()
}

func noted(title, note string) string { return strings.TrimSuffix(title+", "+note, ", ") }

// head says of what the figures are.
func (t *table) head() string {
	var versions []string
	for _, l := range t.Libraries {
		if l.Version != "this tree" {
			versions = append(versions, l.Name+" "+l.Version)
		}
	}
	processors := "1 processor"
	if t.Processors > 1 {
		processors = fmt.Sprint(t.Processors, " processors")
	}
	return fmt.Sprintf("%s, %s, %s, %s: %s.", t.Server, t.Go, processors,
		t.At.Format(time.DateOnly), strings.Join(versions, ", "))
}

// print writes one row for each cell and library. A column that nobody has a value for is left out, and a cell's name where
// it is that of the row above.
func (t *table) print(b *strings.Builder, baseline string) {
	shown := slices.DeleteFunc(slices.Clone(columns[t.What]), func(c string) bool {
		return !slices.ContainsFunc(t.Rows, func(r *row) bool {
			return slices.ContainsFunc(r.Figures[c], func(v float64) bool { return v != 0 })
		}) &&
			!slices.Contains(sums, c)
	})
	head := append([]string{"", "library"}, shown...)
	if baseline != "" {
		if !slices.ContainsFunc(t.Rows, func(r *row) bool { return r.Library == baseline }) {
			baseline = ""
		} else {
			head = slices.Insert(head, 3, "ratio")
		}
	}
	fmt.Fprintf(b, "\n|%s|\n|---|---|%s\n", strings.Join(head, "|"),
		strings.Repeat("--:|", len(head)-2))
	above := ""
	for _, r := range t.Rows {
		cells := []string{r.Cell, strings.NewReplacer("etcd ", "", "zookeeper ", "", "SELECT … ", "").Replace(r.Library)}
		if r.Cell == above {
			cells[0] = ""
		}
		above = r.Cell
		for i, c := range shown {
			values := r.Figures[c]
			switch {
			case len(values) == 0:
				cells = append(cells, "–")
			case slices.Contains(sums, c):
				sum := 0.0
				for _, v := range values {
					sum += v
				}
				cells = append(cells, fmt.Sprint(sum))
			case i == 0:
				cells = append(cells, spread(values))
			default:
				// Below 0 if a server has given memory back meanwhile.
				cells = append(cells, digits(max(0, median(values))))
			}
			if i == 0 && baseline != "" {
				cells = append(cells, t.ratio(r, c, baseline))
			}
		}
		fmt.Fprintf(b, "|%s|\n", strings.Join(cells, "|"))
	}
}

// ratio divides the value of each round by that of the baseline, in the same cell.
func (t *table) ratio(r *row, column, baseline string) string {
	for _, base := range t.Rows {
		if base.Library != baseline || base.Cell != r.Cell {
			continue
		}
		var ratios []float64
		for i, v := range r.Figures[column] {
			if i < len(base.Figures[column]) && base.Figures[column][i] > 0 {
				ratios = append(ratios, v/base.Figures[column][i])
			}
		}
		if len(ratios) > 0 {
			return digits(median(ratios))
		}
	}
	return "–"
}

// draw has a line for each library: requests for an acquisition, over the number of those who wait
// on Redis.
func (b *book) draw(file string) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = "One name", "waiters", "commands sent for an acquisition"
	p.BackgroundColor = color.White
	p.X.Scale, p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Millimeter
	p.Add(plotter.NewGrid())
	lines := make(map[string]plotter.XYs)
	var names []string
	var ticks []plot.Tick
	for _, t := range b.Tables {
		if t.Subject != "redis" || t.What != "contended" || t.Note != "" {
			continue
		}
		for _, r := range t.Rows {
			var waiters float64
			if _, err := fmt.Sscan(r.Cell, &waiters); err != nil {
				return fmt.Errorf("%q does not begin with how many wait: %w", r.Cell, err)
			}
			if lines[r.Library] == nil {
				names = append(names, r.Library)
			}
			lines[r.Library] = append(lines[r.Library],
				plotter.XY{X: waiters, Y: median(r.Figures["requests"])})
			ticks = append(ticks, plot.Tick{Value: waiters, Label: fmt.Sprint(waiters)})
		}
	}
	for i, name := range names {
		line, points, err := plotter.NewLinePoints(lines[name])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		line.Color, points.Color, points.Shape = plotutil.Color(i), plotutil.Color(i), plotutil.Shape(i)
		p.Add(line, points)
		p.Legend.Add(name, line, points)
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
	p.X.Max *= 1.35 // space for the last number
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return p.Save(18*vg.Centimeter, 10*vg.Centimeter, file)
}

// percentile returns the smallest value that so many of a hundred do not exceed, and 0 of none.
func percentile(all []time.Duration, percent int) time.Duration {
	if len(all) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(all))[(len(all)*percent+99)/100-1]
}

// median of an even number is the mean of the middle two.
func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// spread is "median(lowest–highest)", or one figure if they are written alike.
func spread(all []float64) string {
	middle, low, high := digits(median(all)), digits(slices.Min(all)), digits(slices.Max(all))
	if low == high {
		return middle
	}
	return fmt.Sprintf("%s(%s–%s)", middle, low, high)
}

// digits writes three of them, or all of a larger number.
func digits(f float64) string {
	decimals := 0
	switch size := math.Abs(f); {
	case size == 0 || size >= 100:
	case size >= 10:
		decimals = 1
	default:
		decimals = 2
	}
	return strconv.FormatFloat(f, 'f', decimals, 64)
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
