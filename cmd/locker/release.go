package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/cmd/locker/internal/outcome"
	"github.com/go-locker/locker/cmd/locker/internal/show"
	"github.com/go-locker/locker/cmd/locker/internal/target"
)

const releaseHelp = `Release ends the hold of another process. It needs --force, and --hold with the
token or the ID of the hold, as locker inspect shows them. If another hold is
there by then, nothing ends. If readers share the lock, an ID ends the share of
one of them, and the token ends all shares.

Stop the holder first, if you can. Release does not stop the holder: it works
on until its next renewal, up to a third of the TTL later. Until then only a
resource that checks the fencing token refuses its writes. Others get the lock
at once.

` + exitHelp

func newRelease() *cobra.Command {
	var force bool
	var hold string
	c := &cobra.Command{
		Use:               "release --force --hold HOLD URL NAME",
		SuggestFor:        []string{"unlock", "free", "unblock"},
		Short:             "End the hold of another process",
		Long:              releaseHelp,
		Example:           "  locker inspect redis://localhost:6379 backup\n  locker release --force --hold 1795367485451592 redis://localhost:6379 backup",
		Args:              args(2, 2, "want URL NAME, as in: locker release --force --hold 1795367485451592 redis://localhost:6379 backup"),
		ValidArgsFunction: schemes,
		RunE: func(c *cobra.Command, args []string) error {
			url, err := target.Expand(args[0])
			if err := cmp.Or(err, checkName(args[1]), checkHold(force, hold)); err != nil {
				return err
			}
			return interruptible(c, func(ctx context.Context) error {
				ended, err := release(ctx, url, args[1], hold)
				if err != nil {
					return err
				}
				_, err = fmt.Printf("ended the hold of %s, token %s\n", show.Holders(ended), show.Token(ended.Token))
				return err
			})
		},
	}
	c.Flags().BoolVar(&force, "force", false, "end the hold although it belongs to another process")
	c.Flags().StringVar(&hold, "hold", "", "the token or the ID of the hold, as locker inspect shows them")
	return c
}

func checkHold(force bool, hold string) error {
	switch {
	case !force:
		return outcome.Usagef("the hold belongs to another process: to end it anyway, use --force")
	case hold == "":
		return outcome.Usagef("--hold is missing: give the token or the ID of the hold, as locker inspect shows them")
	default:
		return nil
	}
}

// release ends the hold that has that token or ID, and returns it.
func release(ctx context.Context, url, name, hold string) (locker.State, error) {
	client, err := target.Open(ctx, url)
	if err != nil {
		return locker.State{}, err
	}
	defer func() { _ = client.Close() }()
	shown, err := client.Inspect(ctx, name)
	switch {
	case err != nil:
		return shown, err
	case !shown.Held:
		return shown, outcome.Errorf(outcome.Lost, "nobody holds %s: nothing was ended", show.Printable(name))
	}
	ended, ok := heldAs(shown, hold)
	if !ok {
		return shown, outcome.Errorf(outcome.Held, "the present hold is not that of --hold: it is of %s, token %s; nothing was ended",
			show.Holders(shown), show.Token(shown.Token))
	}
	return ended, client.ForceRelease(ctx, name, ended)
}

// heldAs returns the part of shown that hold, a token or an ID, identifies: all of it, or one
// reader.
func heldAs(shown locker.State, hold string) (_ locker.State, ok bool) {
	if hold == shown.Holder.ID || shown.Token != 0 && hold == strconv.FormatUint(shown.Token, 10) {
		return shown, true
	}
	i := slices.IndexFunc(shown.Shares, func(p locker.Participant) bool { return p.ID == hold })
	if i < 0 {
		return shown, false
	}
	shown.Holder, shown.Shares = shown.Shares[i], nil
	return shown, true
}
