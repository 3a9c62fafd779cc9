package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/cmd/locker/internal/show"
	"github.com/go-locker/locker/cmd/locker/internal/target"
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
			url, err := target.Expand(args[0])
			if err := cmp.Or(err, format(output, "text", "json"), checkName(args[1])); err != nil {
				return err
			}
			return interruptible(c, func(ctx context.Context) error {
				found, err := inspect(ctx, url, args[1])
				switch {
				case err != nil:
					return err
				case output == "json":
					return writeJSON(os.Stdout, found)
				default:
					return found.write(os.Stdout)
				}
			})
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
	ID        string `json:"id,omitempty"`
	Metadata  string `json:"metadata,omitempty"`
	OfHolders bool   `json:"of_holders_client,omitempty"` // a waiter at a Client that holds the lock, if the backend tells
}

func inspect(ctx context.Context, url, name string) (*inspection, error) {
	client, err := target.Open(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	s, err := client.Inspect(ctx, name)
	if err != nil {
		return nil, err
	}
	found := &inspection{
		Backend: target.Parse(url).String(), Name: name, Held: s.Held, LeftSeconds: s.Left.Seconds(), Token: s.Token, Waiters: []contender{},
	}
	if !s.Since.IsZero() {
		found.Since = &s.Since
	}
	if s.Held && len(s.Shares) == 0 {
		found.Holder = &contender{ID: s.Holder.ID, Metadata: s.Holder.Metadata}
	}
	for _, r := range s.Shares {
		found.Readers = append(found.Readers, contender{ID: r.ID, Metadata: r.Metadata})
	}
	for _, w := range s.Waiters {
		found.Waiters = append(found.Waiters, contender{w.ID, w.Metadata, show.WaitsForItself(s, w)})
	}
	return found, nil
}

func (i *inspection) write(w io.Writer) error {
	t := plainTable()
	t.AppendRow(table.Row{"lock", show.Printable(i.Name)})
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
		t.AppendRow(table.Row{"since", fmt.Sprintf("%s, for %v", i.Since.Local().Format(time.DateTime), show.Ago(*i.Since))})
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
	who := show.Participant(locker.Participant{ID: c.ID, Metadata: c.Metadata})
	if c.OfHolders {
		who += ", the Client that holds it"
	}
	return who
}
