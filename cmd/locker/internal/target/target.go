// Package target opens the backend that a command line names.
package target

import (
	"context"
	"errors"
	"net"
	"os"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/cmd/locker/internal/outcome"
)

// Env is the environment variable that has the URL if the command line has "-".
const Env = "LOCKER_URL"

// Expand returns arg, or the environment's URL if arg is "-".
func Expand(arg string) (string, error) {
	if arg != "-" {
		return arg, nil
	}
	if u := os.Getenv(Env); u != "" {
		return u, nil
	}
	return "", outcome.Usagef("the URL is -, but the environment variable %s is empty", Env)
}

// Open makes a Client. An error before any request was sent is about the user's URL.
func Open(ctx context.Context, rawURL string, opts ...locker.Option) (*locker.Client, error) {
	c, err := locker.Open(ctx, rawURL, opts...)
	switch {
	case err == nil:
		return c, nil
	case unreachable(err):
		return nil, err
	default:
		return nil, &outcome.Error{Code: outcome.Usage, Err: err}
	}
}

// unreachable reports whether an error comes from a server, or from the network: Open asks etcd for
// a token if the URL has a password.
func unreachable(err error) bool {
	_, network := errors.AsType[*net.OpError](err)
	_, etcd := errors.AsType[rpctypes.EtcdError](err)
	_, grpc := errors.AsType[interface {
		error
		GRPCStatus() *grpcstatus.Status
	}](err)
	return network || etcd || grpc || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// Refuse returns the error of a URL that cannot be opened. No part of such a URL may be shown: what
// looks like a host may be a part of a password. Nor may it be parsed: Parse expects valid URLs.
func Refuse(ctx context.Context, url string) error {
	c, err := Open(ctx, url)
	if err != nil {
		return err
	}
	return c.Close()
}
