package main

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/go-analyze/charts"

	"github.com/go-locker/locker"
)

//go:embed compare.html
var pageSource string

var page = template.Must(template.New("page").Parse(pageSource))

// guaranteeMeans explains each guarantee.
var guaranteeMeans = map[locker.Guarantee]string{
	locker.Exclusive:      "one holder at a time",
	locker.Failover:       "one holder, also through the loss of a server",
	locker.Fencing:        "tokens rise",
	locker.FencingDurable: "tokens rise through lost data",
	locker.Ordered:        "waiters are served in order",
	locker.Woken:          "waiters are woken",
}

// renderPage writes the page, as one file.
func (c *comparison) renderPage(w io.Writer) error {
	pictures, err := c.charts()
	if err != nil {
		return err
	}
	return page.Execute(w, map[string]any{
		"Day": c.day(), "Backends": c.backends(), "Guarantees": c.guarantees(), "Scenarios": c.scenarios(),
		"Charts": pictures, "Cost": template.HTML(c.Bench.table().RenderHTML()), "Caption": c.Bench.caption(), "Checks": c.Checks,
	})
}

// chart is a picture with its description.
type chart struct {
	Title, Says string
	SVG         template.HTML
}

func (c *comparison) charts() ([]chart, error) {
	var labels []string
	var pair, handOver [2][]float64
	var perSecond []float64
	for _, b := range c.Bench.Results {
		labels = append(labels, b.Backend)
		pair[0], pair[1] = append(pair[0], b.Pair.P50/1000), append(pair[1], b.Pair.P99/1000)
		handOver[0], handOver[1] = append(handOver[0], b.HandOver.P50/1000), append(handOver[1], b.HandOver.P99/1000)
		perSecond = append(perSecond, b.throughput())
	}
	percentiles := []string{"median", "99th percentile"}
	var all []chart
	for _, one := range []struct {
		title, says string
		series      []string
		values      [][]float64
	}{
		{"Lock and Unlock of a free lock, ms", "less is better", percentiles, pair[:]},
		{"Hand-over to a client that waits, ms", "less is better", percentiles, handOver[:]},
		{
			fmt.Sprintf("Pairs a second of %d goroutines", c.Bench.Goroutines),
			"more is better",
			[]string{"pairs/s"},
			[][]float64{perSecond},
		},
	} {
		svg, err := bars(labels, one.series, one.values)
		if err != nil {
			return nil, fmt.Errorf("chart %q: %w", one.title, err)
		}
		all = append(all, chart{one.title, one.says, svg})
	}
	return all, nil
}

// bars draws horizontal bars, so that the names of servers have room. The first server is at the top.
func bars(labels, series []string, values [][]float64) (template.HTML, error) {
	for i := range values {
		values[i] = reversed(values[i])
	}
	opt := charts.NewBarChartOptionWithData(values)
	opt.Horizontal = true
	for _, label := range reversed(labels) {
		label = shortened(label, 40)
		// The library measures text in a font of its own, and the browser may have a wider one.
		opt.CategoryAxis.Labels = append(opt.CategoryAxis.Labels, label+strings.Repeat("\u00a0", 2+len(label)/5))
	}
	opt.ValueAxis[0].LabelCount = 6
	opt.Legend.SeriesNames = series
	opt.Legend.Show = new(len(series) > 1)
	opt.ValueFormatter = func(v float64) string { return fmt.Sprintf("%.3g", v) }
	if len(series) == 1 {
		opt.ValueFormatter = func(v float64) string { return fmt.Sprintf("%.0f", v) }
	}
	for i := range opt.SeriesList {
		opt.SeriesList[i].Label.Show = new(true)
		opt.SeriesList[i].Label.ValueFormatter = opt.ValueFormatter
	}
	p := charts.NewPainter(charts.PainterOptions{
		OutputFormat: charts.ChartOutputSVG, Width: 900, Height: 110 + len(labels)*len(series)*34,
	})
	if err := p.BarChart(opt); err != nil {
		return "", err
	}
	svg, err := p.Bytes()
	return template.HTML(svg), err // a picture, in which labels are escaped
}

func reversed[T any](all []T) []T {
	all = slices.Clone(all)
	slices.Reverse(all)
	return all
}
