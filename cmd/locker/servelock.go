package main

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-locker/locker/cmd/locker/internal/check"
	"github.com/go-locker/locker/cmd/locker/internal/target"
	programs "github.com/go-locker/locker/conformance/program"
	"github.com/go-locker/locker/internal/stdio"
)

const serveLockHelp = `Serve-lock serves the locks of a server to the conformance suite, over the
protocol for programs in any language: lines of JSON on standard input and
output, until the input ends. docs/evidence/judge-any-language.md specifies
the protocol.

  locker check --exec 'locker serve-lock redis://localhost:6379'

judges the same locks as locker check redis://localhost:6379, through a pipe.

If the environment variable LOCKER_ADDRESS is set, it replaces the hosts of the
URL: the suite uses this to put a proxy before the servers.`

func newServeLock() *cobra.Command {
	var prefix string
	var ttl time.Duration
	c := &cobra.Command{
		Use:               "serve-lock [flags] URL",
		Short:             "Serve the locks of a server to locker check --exec",
		Long:              serveLockHelp,
		Example:           "  locker serve-lock redis://localhost:6379",
		Args:              args(1, 1, "want one URL, as in: locker serve-lock redis://localhost:6379"),
		ValidArgsFunction: schemes,
		RunE: func(_ *cobra.Command, args []string) error {
			url, err := target.Expand(args[0])
			if err != nil {
				return err
			}
			// The user's URL, so that an error is about that.
			if err := target.Refuse(context.Background(), url); err != nil {
				return err
			}
			d := target.Parse(url)
			at := d.Hosts
			if address := os.Getenv(stdio.AddressEnv); address != "" {
				at = strings.Split(address, ",")
			}
			return programs.ServeLocks(os.Stdin, os.Stdout, "locker "+version()+" "+d.Kind(), check.Served(d.At(at), prefix, ttl))
		},
	}
	c.Flags().StringVar(&prefix, "prefix", "locker-served", "prefix of the names")
	c.Flags().DurationVar(&ttl, "ttl", 10*time.Second, "TTL of the Locker whose capabilities are reported")
	return c
}
