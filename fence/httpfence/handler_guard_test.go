package httpfence_test

import (
	"bytes"
	"context"
	"errors"
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

// logged is a server of h, a client, and what the server logs, once it is closed.
func logged(t *testing.T, h http.Handler) (string, *http.Client, func() string) {
	t.Helper()
	var buf bytes.Buffer
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(&buf, "", 0)
	s.Start()
	t.Cleanup(s.Close)
	return s.URL, s.Client(), func() string {
		s.Close()
		return buf.String()
	}
}

func TestHandler_aGuardThatFailsIsTheServersBusiness(t *testing.T) {
	url, client, log := logged(t, httpfence.Handler(never(t), broken{before: errors.New("disk on fire")}, nil))
	req := request(t, "PUT", url+"/orders/42?key=secret", "new")
	req.Header.Set("Fencing-Token", "33")
	resp, err := client.Do(req)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	assert.JSONEq(t, `{"type":"about:blank","title":"Service Unavailable","status":503,`+
		`"detail":"whether the fencing token is stale cannot be told now; nothing was written"}`, string(body))
	assert.Equal(t, "httpfence: PUT \"/orders/42\": disk on fire\n", log())
}

func TestHandler_logsNoClientThatIsGone(t *testing.T) {
	var buf bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ctx = context.WithValue(ctx, http.ServerContextKey, &http.Server{ErrorLog: log.New(&buf, "", 0)})
	var guard fence.Memory
	w := do(httpfence.Handler(never(t), &guard, nil), httptest.NewRequestWithContext(ctx, "PUT", "/", nil), "33")
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.Empty(t, buf.String())
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
	url, client, log := logged(t, httpfence.Handler(created, broken{after: errors.New("not committed")}, nil))
	req := request(t, "PUT", url+"/orders/42", "new")
	req.Header.Set("Fencing-Token", "33")
	_, err := client.Do(req)
	require.ErrorIs(t, err, io.EOF)
	assert.Equal(t, "httpfence: PUT \"/orders/42\": after the handler has returned: not committed\n", log())
}

func TestHandler_takesAnyErrorThatIsStale(t *testing.T) {
	w := put(t, httpfence.Handler(never(t), broken{before: fence.ErrStale}, nil), "/", "33")
	assert.Equal(t, http.StatusPreconditionFailed, w.Code)
	assert.Contains(t, w.Body.String(), "the token is 33, and a later holder has written")
}
