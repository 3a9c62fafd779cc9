package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/go-locker/locker/cmd/locker/internal/show"
	"github.com/go-locker/locker/cmd/locker/internal/target"
)

const listHelp = `List prints the names of the locks that are held, one a line, in no order: all
under the prefix of the URL, or those that begin with PREFIX. It changes
nothing. A name that is taken or released meanwhile may be missing, and any name
may be printed twice. Ctrl-C ends it. On Redis, list goes through all keys of
the servers, a few hundred at a time.

To see who holds a lock, use locker inspect.

` + exitHelp

func newList() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:               "list [flags] URL [PREFIX]",
		SuggestFor:        []string{"ls", "locks"},
		Short:             "Print the names of the locks that are held",
		Long:              listHelp,
		Example:           "  locker list redis://localhost:6379\n  locker list --output json - orders/ | jq -r .name",
		Args:              args(1, 2, "want URL [PREFIX], as in: locker list redis://localhost:6379 orders/"),
		ValidArgsFunction: schemes,
		RunE: func(c *cobra.Command, args []string) error {
			url, err := target.Expand(args[0])
			prefix := ""
			if len(args) > 1 {
				prefix = args[1]
			}
			if err := cmp.Or(err, format(output, "text", "json"), checkText("the prefix", prefix, "URL [PREFIX]")); err != nil {
				return err
			}
			return interruptible(c, func(ctx context.Context) error { return list(ctx, url, prefix, output) })
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "text", "text, or json: one object a line")
	return c
}

func list(ctx context.Context, url, prefix, output string) error {
	client, err := target.Open(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	names := json.NewEncoder(os.Stdout)
	for name, err := range client.List(ctx, prefix) {
		switch {
		case err != nil:
			return err
		case output == "json":
			err = names.Encode(struct {
				Name string `json:"name"`
			}{name})
		default:
			_, err = fmt.Println(show.Printable(name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
