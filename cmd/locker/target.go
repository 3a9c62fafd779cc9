package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/backends"
)

// urlEnv has the URL if the command line has "-".
const urlEnv = "LOCKER_URL"

var urlHelp = "The backend is a URL:\n" + urlForms() + `
"-" stands for the value of the environment variable LOCKER_URL. Put a URL with
a password there: other users of the machine see the command line of a process,
but not its environment. Every URL takes ttl=10s, prefix=app, renew=false,
token_base=1000 and require=fencing,failover.`

// urlForms lists the URLs of all backends, mem:// last.
func urlForms() string {
	var lines strings.Builder
	for _, b := range slices.Concat(backends.All[1:], backends.All[:1]) {
		for form := range slices.Chunk(b.Help, 2) {
			fmt.Fprintf(&lines, "  %-38s %s\n", form[0], form[1])
		}
	}
	return lines.String()
}

// expandURL returns arg, or the environment's URL if arg is "-".
func expandURL(arg string) (string, error) {
	if arg != "-" {
		return arg, nil
	}
	if u := os.Getenv(urlEnv); u != "" {
		return u, nil
	}
	return "", usagef("the URL is -, but the environment variable %s is empty", urlEnv)
}

// open makes a Client. An error before any request was sent is about the user's URL.
func open(ctx context.Context, rawURL string, opts ...locker.Option) (*locker.Client, error) {
	c, err := locker.Open(ctx, rawURL, opts...)
	switch {
	case err == nil:
		return c, nil
	case unreachable(err):
		return nil, err
	default:
		return nil, &statusError{code: exitUsage, err: err}
	}
}

// unreachable reports whether an error comes from a server, or from the network: Open asks etcd for a token if the URL has a password.
func unreachable(err error) bool {
	_, network := errors.AsType[*net.OpError](err)
	_, etcd := errors.AsType[rpctypes.EtcdError](err)
	_, grpc := errors.AsType[interface {
		error
		GRPCStatus() *grpcstatus.Status
	}](err)
	return network || etcd || grpc || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// refuse returns the error of a URL that cannot be opened. No part of such a URL may be shown: what looks like a host may be a part of a
// password. Nor may it be parsed: parse expects valid URLs.
func refuse(ctx context.Context, url string) error {
	c, err := open(ctx, url)
	if err != nil {
		return err
	}
	return c.Close()
}

// toStderr logs to stderr what no call returns: why a hold was lost, and renewals that failed.
func toStderr() locker.Option {
	return locker.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil)))
}

// checkName refuses names that no backend takes, before any request.
func checkName(name string) error {
	switch {
	case name == "":
		return usagef("the name of the lock is empty")
	case !utf8.ValidString(name):
		return usagef("the name of the lock is not UTF-8")
	case isURL(name): // its password would be in a key, and in every error
		return usagef("the name of the lock is a URL of a backend: want URL NAME")
	default:
		return nil
	}
}

// whoami returns the default metadata of a hold: user@host, and the process.
func whoami() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	name := cmp.Or(os.Getenv("USER"), os.Getenv("USERNAME"))
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return cmp.Or(name, "unknown") + "@" + host + " pid " + strconv.Itoa(os.Getpid())
}

// schemes completes the URL, which is the first argument.
func schemes(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	all := []cobra.Completion{cobra.CompletionWithDesc("-", "the URL in "+urlEnv)}
	for _, scheme := range driver.Schemes() {
		all = append(all, scheme+"://")
	}
	return all, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
}

// schemesThenCommand completes the URL, and what comes after --: a program, and then files.
func schemesThenCommand(c *cobra.Command, args []string, part string) ([]cobra.Completion, cobra.ShellCompDirective) {
	switch {
	case len(args) < 2:
		return schemes(c, args, part)
	case len(args) > 2 || strings.ContainsRune(part, filepath.Separator):
		return nil, cobra.ShellCompDirectiveDefault // files
	}
	var programs []cobra.Completion
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		files, _ := os.ReadDir(dir)
		for _, f := range files {
			if _, err := exec.LookPath(filepath.Join(dir, f.Name())); err == nil && strings.HasPrefix(f.Name(), part) {
				programs = append(programs, f.Name())
			}
		}
	}
	slices.Sort(programs)
	return slices.Compact(programs), cobra.ShellCompDirectiveDefault
}
