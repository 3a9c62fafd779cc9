package stories

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
)

//go:embed page.html
var pageHTML string

var page = template.Must(template.New("stories").Parse(pageHTML))

// told is a story with what its runs show.
type told struct {
	Story
	Views []View
}

// Write writes the page. It needs nothing else.
func Write(w io.Writer) error {
	var all []told
	for _, s := range Stories() {
		one := told{Story: s}
		for _, r := range s.Runs {
			rec, err := Read(r.File)
			if err != nil {
				return fmt.Errorf("%s: %w", r.File, err)
			}
			v, err := r.View(rec)
			if err != nil {
				return err
			}
			one.Views = append(one.Views, v)
		}
		all = append(all, one)
	}
	return page.Execute(w, all)
}

// Last is the number of the last step.
func (v View) Last() int { return len(v.Steps) - 1 }

// Cell is what there is to see of a lane after a step.
type Cell struct {
	State

	Mark string
}

// Cells returns what there is to see of a lane, step by step.
func (v View) Cells(lane int) []Cell {
	var all []Cell
	for _, s := range v.Steps {
		c := Cell{State: s.States[lane]}
		if s.Lane == lane {
			c.Mark = s.Mark
		}
		all = append(all, c)
	}
	return all
}
