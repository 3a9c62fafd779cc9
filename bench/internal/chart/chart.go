// Package chart draws what was measured.
package chart

import (
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"github.com/go-locker/locker/bench/internal/stats"
)

// Chart has a line for each series, over X on a logarithmic scale. Whiskers are the lowest and the highest round.
type Chart struct {
	File        string // without directory and ending
	Title, X, Y string
	LogY        bool // cannot show 0
	Series      []Series
}

// Series is one line.
type Series struct {
	Name   string
	Points []Point
}

// Point is what several rounds came to at X.
type Point struct {
	X float64
	Y stats.Spread
}

// Of has a series for each name, and in it a point for each X, of the values of one round each.
func Of[T any](all []T, name func(*T) string, x, y func(*T) float64) []Series {
	var series []Series
	for _, group := range stats.Grouped(all, func(t T) string { return name(&t) }) {
		s := Series{Name: name(&group[0])}
		for _, cell := range stats.Grouped(group, func(t T) string { return fmt.Sprint(x(&t)) }) {
			s.Points = append(s.Points, Point{x(&cell[0]), stats.Across(cell, y)})
		}
		series = append(series, s)
	}
	return series
}

const width, height = 18 * vg.Centimeter, 10 * vg.Centimeter

// Save writes an SVG into directory, which is made if it is not there.
func (c Chart) Save(directory string) error {
	if len(c.Series) == 0 || slices.ContainsFunc(c.Series, func(s Series) bool { return len(s.Points) == 0 }) {
		return fmt.Errorf("%s: a series without a point, or none", c.File)
	}
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.Title, c.X, c.Y
	p.BackgroundColor = color.White
	p.X.Scale = plot.LogScale{}
	if c.LogY {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.Padding = vg.Millimeter
	p.Add(plotter.NewGrid())
	var ticks []plot.Tick
	for i, s := range c.Series {
		if c.LogY {
			s.Points = slices.DeleteFunc(slices.Clone(s.Points), func(p Point) bool { return p.Y.Low <= 0 })
			if len(s.Points) == 0 {
				continue
			}
		}
		line, points, err := plotter.NewLinePoints(s)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", c.File, s.Name, err)
		}
		whiskers, err := plotter.NewYErrorBars(s)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", c.File, s.Name, err)
		}
		line.Color, points.Color, whiskers.Color = plotutil.Color(i), plotutil.Color(i), plotutil.Color(i)
		points.Shape = plotutil.Shape(i)
		p.Add(line, points, whiskers)
		p.Legend.Add(s.Name, line, points)
		for _, point := range s.Points {
			tick := plot.Tick{Value: point.X, Label: strconv.FormatFloat(point.X, 'f', -1, 64)}
			if !slices.Contains(ticks, tick) {
				ticks = append(ticks, tick)
			}
		}
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
	if !c.LogY {
		p.Y.Min, p.Y.Max = 0, 1.35*p.Y.Max // the legend is above the lines
	}
	if len(ticks) == 1 { // an axis needs a length
		p.X.Min, p.X.Max = ticks[0].Value/2, ticks[0].Value*2
	}
	p.X.Max *= 1.35 // space for the last number
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	return p.Save(width, height, filepath.Join(directory, c.File+".svg"))
}

// Len implements plotter.XYer.
func (s Series) Len() int { return len(s.Points) }

// XY implements plotter.XYer.
func (s Series) XY(i int) (x, y float64) { return s.Points[i].X, s.Points[i].Y.Median }

// YError implements plotter.YErrorer.
func (s Series) YError(i int) (low, high float64) {
	y := s.Points[i].Y
	return y.Median - y.Low, y.High - y.Median
}
