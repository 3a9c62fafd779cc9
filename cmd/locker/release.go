package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/go-locker/locker"
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
			url, err := expandURL(args[0])
			if err := errors.Join(err, checkName(args[1]), checkHold(force, hold)); err != nil {
				return err
			}
			ctx, stop := interruptible(c.Context())
			defer stop()
			ended, err := release(ctx, url, args[1], hold)
			if err != nil {
				return firstError(context.Cause(ctx), err)
			}
			_, err = fmt.Printf("ended the hold of %s, token %s\n", holders(ended), shownToken(ended.Token))
			return err
		},
	}
	c.Flags().BoolVar(&force, "force", false, "end the hold although it belongs to another process")
	c.Flags().StringVar(&hold, "hold", "", "the token or the ID of the hold, as locker inspect shows them")
	return c
}

func checkHold(force bool, hold string) error {
	switch {
	case !force:
		return usagef("the hold belongs to another process: to end it anyway, use --force")
	case hold == "":
		return usagef("--hold is missing: give the token or the ID of the hold, as locker inspect shows them")
	default:
		return nil
	}
}

// release ends the hold that has that token or ID, and returns it.
func release(ctx context.Context, url, name, hold string) (locker.State, error) {
	client, err := open(ctx, url)
	if err != nil {
		return locker.State{}, err
	}
	defer func() { _ = client.Close() }()
	shown, err := client.Inspect(ctx, name)
	switch {
	case err != nil:
		return shown, err
	case !shown.Held:
		return shown, &statusError{code: exitLost, err: fmt.Errorf("nobody holds %s: nothing was ended", printable(name))}
	}
	told, ok := told(shown, hold)
	if !ok {
		return shown, &statusError{code: exitHeld, err: fmt.Errorf("the present hold is not that of --hold: it is of %s, token %s; nothing was ended",
			holders(shown), shownToken(shown.Token))}
	}
	return told, client.ForceRelease(ctx, name, told)
}

// told returns the part of shown that hold, a token or an ID, is: all of it, or one reader.
func told(shown locker.State, hold string) (_ locker.State, ok bool) {
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

// holders returns who holds the lock, as text: one, or several readers.
func holders(s locker.State) string {
	if len(s.Shares) == 0 {
		return contender{s.Holder.ID, s.Holder.Metadata}.show()
	}
	var all []string
	for _, p := range s.Shares {
		all = append(all, contender{p.ID, p.Metadata}.show())
	}
	return strings.Join(all, ", ")
}

// shownToken returns a token as text. ZooKeeper does not always tell it.
func shownToken(token uint64) string {
	if token == 0 {
		return "not known"
	}
	return strconv.FormatUint(token, 10)
}
