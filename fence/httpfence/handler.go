package httpfence

import (
	"context"
	"errors"
	"log"
	"net/http"
	"path"
	"strconv"

	"github.com/go-locker/locker/fence"
)

// Handler returns a handler that lets a request through to next unless its token is stale. The
// package documentation says how it answers otherwise. Safe methods pass unseen: next must not
// write on a GET.
//
// A resource is what one lock protects; only tokens of the same resource are compared. The function
// resource returns the resource that a request writes. If it is nil, the resource is the path of
// the URL, unescaped and cleaned by [path.Clean]: /a/b, /a/./b, //a/b, /a%2Fb and /a/b/ are one
// resource, whatever the host and the query. next gets the URL as it was sent. Requests that write
// one thing must have one resource, or the fence keeps two tokens for it. If letter case does not
// matter (/A and /a are one thing), or if one thing has several paths, as by a symbolic link, pass
// a function of your own. If a handler changes the path, such as [http.StripPrefix], put the
// Handler inside of it, so that it sees the path that next sees. All servers of a resource have to
// share one guard, or the resource has several newest tokens: a [fence.Memory] serves one process,
// and a Dir of filefence one machine. If several machines write the resource, the check belongs
// into the database that they share.
//
// All of next's ServeHTTP runs within one Write of the [fence.Guard]. A request with a larger token
// waits until next has returned, for as long as its own context allows. It waits even if the client
// of the earlier request has gone. So next should end in time. Work that next leaves to goroutines,
// or does with a hijacked connection after its return, is not fenced. [http.TimeoutHandler] returns
// before the handler within it does. So put it around a Handler, never between a Handler and the
// code that writes. If next panics, its token counts as seen, and the panic goes on. If the guard
// reports an error after next has returned, the connection is aborted. Otherwise a client could
// believe that the write was made.
//
// Authenticate clients before the Handler. A client that may send a token may send the largest
// token there is, which shuts all others out for good. It may also make the guard remember any
// number of resources.
func Handler(next http.Handler, guard fence.Guard, resource func(*http.Request) string) http.Handler {
	if resource == nil {
		resource = func(r *http.Request) string { return path.Clean("/" + r.URL.Path) }
	}
	return &handler{next, guard, resource}
}

type handler struct {
	next     http.Handler
	guard    fence.Guard
	resource func(*http.Request) string
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if safe(r.Method) {
		h.next.ServeHTTP(w, r)
		return
	}
	token, refused := tokenIn(r)
	if refused != nil {
		refused.write(w)
		return
	}
	called := false
	err := h.guard.Write(r.Context(), h.resource(r), token, func(ctx context.Context) error {
		called = true
		if ctx != r.Context() { // the server removes the files of a form that came with r itself, not with a copy
			r = r.WithContext(ctx)
		}
		h.next.ServeHTTP(w, r)
		return nil
	})
	switch {
	case called && err == nil:
	case called:
		logf(r, "after the handler has returned: %v", err)
		panic(http.ErrAbortHandler)
	case errors.Is(err, fence.ErrStale):
		stale(token, err).write(w)
	default:
		if r.Context().Err() == nil { // else the client has tired of waiting
			logf(r, "%v", err)
		}
		answer := unavailable
		if errors.Is(err, fence.ErrUnknown) {
			answer = unknown
		}
		answer.write(w)
	}
}

// tokenIn returns the token of r, or the answer to a request without a valid one.
func tokenIn(r *http.Request) (uint64, *problem) {
	fields := r.Header.Values(Header)
	if len(fields) == 0 {
		return 0, missing
	}
	token, err := strconv.ParseUint(fields[0], 10, 64)
	if err != nil || len(fields) > 1 {
		return 0, malformed
	}
	return token, nil
}

// logf logs where the server of r does.
func logf(r *http.Request, format string, args ...any) {
	logger := log.Default()
	if s, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok && s.ErrorLog != nil {
		logger = s.ErrorLog
	}
	logger.Printf("httpfence: %s %q: "+format, append([]any{r.Method, r.URL.Path}, args...)...)
}
