package main

import (
	_ "embed"
	"html/template"
	"io"

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
	return page.Execute(w, map[string]any{
		"Day": c.day(), "Backends": c.backends(), "Guarantees": c.guarantees(), "Scenarios": c.scenarios(),
		"Cost": template.HTML(c.Bench.table().RenderHTML()), "Caption": c.Bench.caption(), "Checks": c.Checks,
	})
}
