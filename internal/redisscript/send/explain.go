package send

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-locker/locker/internal/noanswer"
)

// explain says what of the URL is likely wrong, where the error of the server or of the client
// library does not name it, and which answers are those of a server that serves nobody for a while.
// cluster: the client library follows ASK and MOVED by itself, and has given up while a slot moves.
func explain(err error, cluster bool) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	first, _, _ := strings.Cut(text, ", with args")
	switch {
	case strings.HasPrefix(first, "ERR unknown command") && strings.Contains(strings.ToLower(first), "eval"):
		return &explained{"the server runs no scripts: " + first + " (if it is a Sentinel, the URL needs the parameter master_name)", err}
	case strings.HasSuffix(text, "sentinels specified in configuration are unreachable: redis: nil"):
		return &explained{"no sentinel watches a primary of the name in master_name", err}
	case err == io.EOF: //nolint:errorlint // one that wraps it has more to say
		return &explained{"the server has closed the connection (as a port for TLS does, if the URL is not one for TLS)", err}
	}
	if servesNobody(text) || cluster && (strings.HasPrefix(text, "ASK ") || strings.HasPrefix(text, "MOVED ")) {
		return &noanswer.Later{Err: err}
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return fmt.Errorf("%w (the URL is one for TLS, and the port speaks something else)", err)
	}
	return err
}

// servesNobody reports whether a server answers so to everybody, for a while: it reads its data
// after a start, a script keeps it busy, all its connections are in use, a replica has lost its
// primary, or a part of a Redis Cluster fails over or moves.
func servesNobody(answer string) bool {
	for _, prefix := range []string{"LOADING ", "BUSY ", "ERR max number of clients", "MASTERDOWN ", "CLUSTERDOWN ", "TRYAGAIN "} {
		if strings.HasPrefix(answer, prefix) {
			return true
		}
	}
	return false
}

// explained is an error with a text that says more.
type explained struct {
	text string
	err  error
}

func (e *explained) Error() string { return e.text }

// Unwrap returns the error itself.
func (e *explained) Unwrap() error { return e.err }
