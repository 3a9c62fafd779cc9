package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
)

const inspectHelp = `Inspect shows who holds the lock NAME, when the hold expires unless it is
renewed, the fencing token, and who waits. It changes nothing. By the time you
read the answer another may hold the lock: a script that acts on the answer
needs the lock itself (locker run).

The exit code is also 0 if the lock is free. With --output json the field
"held" tells whether it is held.

` + exitHelp

func newInspect() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:               "inspect [flags] URL NAME",
		SuggestFor:        []string{"status", "show", "info", "who"},
		Short:             "Show who holds a lock, and who waits for it",
		Long:              inspectHelp,
		Example:           "  locker inspect redis://localhost:6379 backup\n  locker inspect --output json - backup | jq .holder.metadata",
		Args:              args(2, 2, "want URL NAME, as in: locker inspect redis://localhost:6379 backup"),
		ValidArgsFunction: schemes,
		RunE: func(c *cobra.Command, args []string) error {
			url, err := expandURL(args[0])
			if err := errors.Join(err, format(output, "text", "json"), checkName(args[1])); err != nil {
				return err
			}
			ctx, stop := interruptible(c.Context())
			defer stop()
			found, err := inspect(ctx, url, args[1])
			if err != nil {
				return firstError(context.Cause(ctx), err)
			}
			if output == "json" {
				return writeJSON(os.Stdout, found)
			}
			return found.write(os.Stdout)
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return c
}

// inspection is a locker.State, to be printed or encoded.
type inspection struct {
	Backend     string      `json:"backend"`
	Name        string      `json:"name"`
	Held        bool        `json:"held"`
	Holder      *contender  `json:"holder,omitempty"`
	Readers     []contender `json:"readers,omitempty"` // who share it; then there is no holder
	Since       *time.Time  `json:"since,omitempty"`   // none if the backend does not tell
	LeftSeconds float64     `json:"left_seconds"`      // 0 if the backend does not tell
	Token       uint64      `json:"token"`             // the last one, if the lock is free
	Waiters     []contender `json:"waiters"`
}

type contender struct {
	ID       string `json:"id,omitempty"`
	Metadata string `json:"metadata,omitempty"`
}

func inspect(ctx context.Context, url, name string) (*inspection, error) {
	client, err := open(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	s, err := client.Inspect(ctx, name)
	if err != nil {
		return nil, err
	}
	found := &inspection{
		Backend: parse(url).String(), Name: name, Held: s.Held, LeftSeconds: s.Left.Seconds(), Token: s.Token, Waiters: []contender{},
	}
	if !s.Since.IsZero() {
		found.Since = &s.Since
	}
	if s.Held && len(s.Shares) == 0 {
		found.Holder = &contender{s.Holder.ID, s.Holder.Metadata}
	}
	for _, r := range s.Shares {
		found.Readers = append(found.Readers, contender{r.ID, r.Metadata})
	}
	for _, w := range s.Waiters {
		found.Waiters = append(found.Waiters, contender{w.ID, w.Metadata})
	}
	return found, nil
}

func (i *inspection) write(w io.Writer) error {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Options = table.OptionsNoBordersAndSeparators
	t.AppendRow(table.Row{"lock", printable(i.Name)})
	t.AppendRow(table.Row{"backend", i.Backend})
	for n, who := range i.Readers {
		t.AppendRow(table.Row{fmt.Sprintf("reader %d", n+1), who.show()})
	}
	switch {
	case i.Holder != nil:
		t.AppendRow(table.Row{"held by", i.Holder.show()})
	case !i.Held:
		t.AppendRow(table.Row{"held by", "nobody"})
	}
	if i.Since != nil {
		t.AppendRow(table.Row{"since", fmt.Sprintf("%s, for %v", i.Since.Local().Format(time.DateTime), ago(*i.Since))})
	}
	if i.Held {
		t.AppendRow(table.Row{"expires", i.expires()})
	}
	t.AppendRow(table.Row{"token", i.token()})
	for n, who := range i.Waiters {
		t.AppendRow(table.Row{fmt.Sprintf("waiter %d", n+1), who.show()})
	}
	if len(i.Waiters) == 0 {
		t.AppendRow(table.Row{"waiters", "none in a queue"})
	}
	_, err := fmt.Fprintln(w, t.Render())
	return err
}

func (i *inspection) expires() string {
	if i.LeftSeconds == 0 {
		return "unknown"
	}
	left := time.Duration(i.LeftSeconds * float64(time.Second)).Round(100 * time.Millisecond)
	return fmt.Sprintf("in %v, unless it is renewed", left)
}

func (i *inspection) token() string {
	switch {
	case i.Token == 0:
		return "none"
	case i.Held:
		return strconv.FormatUint(i.Token, 10)
	default:
		return strconv.FormatUint(i.Token, 10) + ", the last one"
	}
}

func (c contender) show() string {
	who := cmp.Or(printable(c.Metadata), "an owner without metadata")
	if c.ID == "" {
		return who
	}
	return who + " (" + printable(c.ID) + ")"
}

// printable quotes text that has characters which a terminal may take for a command.
func printable(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) }) {
		return s
	}
	return strconv.Quote(s)
}
