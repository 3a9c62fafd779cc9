package httpfence_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/httpfence"
)

// broken is a guard that fails before or after the write.
type broken struct {
	before, after error
}

func (b broken) Write(ctx context.Context, _ string, _ uint64, write func(context.Context) error) error {
	if b.before != nil {
		return b.before
	}
	return errors.Join(write(ctx), b.after)
}

// logging is a request whose server logs to the buffer.
func logging(ctx context.Context, target string) (*http.Request, *bytes.Buffer) {
	var buf bytes.Buffer
	ctx = context.WithValue(ctx, http.ServerContextKey, &http.Server{ErrorLog: log.New(&buf, "", 0)})
	return httptest.NewRequestWithContext(ctx, "PUT", target, nil), &buf
}

// The place of the token, and the failure, go to the server's log and into no response.
func TestHandler_aGuardThatFailsIsTheServersBusiness(t *testing.T) {
	for _, c := range []struct {
		err  error
		body string
		is   error // what Check says
	}{
		{errors.New("disk on fire"), `{"type":"about:blank","title":"Service Unavailable","status":503,` +
			`"detail":"whether the fencing token is stale cannot be told now; nothing was written"}`, nil},
		{fmt.Errorf("/var/fence: %w", fence.ErrUnknown), `{"type":"https://github.com/go-locker/locker/tree/main/fence/httpfence#unknown-tokens",` +
			`"title":"Which fencing tokens were seen is not known","status":503,` +
			`"detail":"nothing was written, and nothing will be until the newest token is put where the resource keeps it"}`, fence.ErrUnknown},
	} {
		r, log := logging(t.Context(), "/orders/42?key=secret")
		resp := do(httpfence.Handler(never(t), broken{before: c.err}, nil), r, "33").Result()
		resp.Request = r
		err := httpfence.Check(resp)
		require.ErrorIs(t, err, c.is)
		if c.is != nil {
			leadsToThePage(t, c.body, resp.StatusCode)
			require.ErrorContains(t, err, `"/orders/42"`)
		}
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err, "it can still be read")
		assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		assert.JSONEq(t, c.body, string(body))
		assert.Equal(t, "httpfence: PUT \"/orders/42\": "+c.err.Error()+"\n", log.String())
	}
}

func TestHandler_logsNoClientThatIsGone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, log := logging(ctx, "/")
	assert.Equal(t, http.StatusServiceUnavailable, do(httpfence.Handler(never(t), new(fence.Memory), nil), r, "33").Code)
	assert.Empty(t, log.String())
}

// transaction is a guard that has something to tell the write.
type transaction struct{ fence.Memory }

type txKey struct{}

func (g *transaction) Write(ctx context.Context, resource string, token uint64, write func(context.Context) error) error {
	return g.Memory.Write(context.WithValue(ctx, txKey{}, "tx"), resource, token, write)
}

func TestHandler_hasTheContextOfTheGuard(t *testing.T) {
	var guard transaction
	put(t, httpfence.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "tx", r.Context().Value(txKey{}))
	}), &guard, nil), "/", "33")
}

// A guard whose transaction is not committed, say.
func TestHandler_aFailureAfterTheHandlerIsNoSuccess(t *testing.T) {
	r, log := logging(t.Context(), "/orders/42")
	assert.PanicsWithValue(t, http.ErrAbortHandler, func() {
		do(httpfence.Handler(created, broken{after: errors.New("not committed")}, nil), r, "33")
	})
	assert.Equal(t, "httpfence: PUT \"/orders/42\": after the handler has returned: not committed\n", log.String())
}

func TestHandler_takesAnyErrorThatIsStale(t *testing.T) {
	w := put(t, httpfence.Handler(never(t), broken{before: fence.ErrStale}, nil), "/", "33")
	assert.Equal(t, http.StatusPreconditionFailed, w.Code)
	assert.Contains(t, w.Body.String(), "the token is 33, and a later holder has written")
}
