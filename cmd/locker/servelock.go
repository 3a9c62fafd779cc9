package main

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	programs "github.com/go-locker/locker/conformance/program"
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
			url, err := expandURL(args[0])
			if err != nil {
				return err
			}
			return serveLock(url, prefix, ttl)
		},
	}
	c.Flags().StringVar(&prefix, "prefix", "locker-served", "prefix of the names")
	c.Flags().DurationVar(&ttl, "ttl", 10*time.Second, "TTL of the Locker whose capabilities are reported")
	return c
}

func serveLock(url, prefix string, ttl time.Duration) error {
	c, err := open(context.Background(), url) // the URL as it was given: an error is about that
	if err != nil {
		return err
	}
	if err := c.Close(); err != nil {
		return err
	}
	d := parse(url)
	at := d.Hosts
	if address := os.Getenv(programs.AddressEnv); address != "" {
		at = strings.Split(address, ",")
	}
	url = d.url(at)
	return programs.ServeLocks(os.Stdin, os.Stdout, "locker "+version()+" "+d.kind(), conformance.Harness{
		TTL: ttl,
		New: func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
			return openMutex(t, url, prefix, name, ttl)
		},
		Client: func(t conformance.TB, ttl time.Duration, renew bool) func(string) locker.Locker {
			c := openClient(t, url, prefix)
			return func(name string) locker.Locker { return c.RWMutex(name, mutexOptions(ttl, renew)...) }
		},
	})
}

func mutexOptions(ttl time.Duration, renew bool) []locker.MutexOption {
	opts := []locker.MutexOption{locker.WithTTL(ttl)}
	if !renew {
		opts = append(opts, locker.WithoutRenewal())
	}
	return opts
}
