package kubernetes

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

const apis = "/apis/coordination.k8s.io/v1/namespaces/"

// kube returns the server that tests of make nightly share.
func kube(t *testing.T) *testserver.KubeServer {
	t.Helper()
	testwait.OnlyNightly(t, "make setup-nightly builds the server")
	return testserver.SharedKube(t)
}

// openURL makes a Client at a server, in the test's space.
func openURL(t *testing.T, s *testserver.KubeServer, parameters string) *locker.Client {
	t.Helper()
	c, err := locker.Open(t.Context(), "kubernetes://"+s.Addr()+"?kubeconfig="+s.Kubeconfig(testserver.KubeAdmin)+parameters, locker.WithPrefix(harness.Space(t)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func driverAt(t *testing.T, s *testserver.KubeServer) *backend {
	t.Helper()
	u, err := driver.ParseURL("kubernetes://" + s.Addr() + "?kubeconfig=" + s.Kubeconfig(testserver.KubeAdmin))
	require.NoError(t, err)
	d, err := open(t.Context(), u)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d.(*backend)
}

func call(t *testing.T, s *testserver.KubeServer, method, path, content, body string) string {
	t.Helper()
	answer, err := s.Call(method, path, content, strings.NewReader(body))
	require.NoError(t, err)
	return answer
}

// The rights that docs/backends/kubernetes.md has people grant are enough for a service account;
// without them Lock fails at once.
func TestKube_rights(t *testing.T) {
	s := kube(t)
	call(t, s, http.MethodPost, "/api/v1/namespaces", "application/yaml", "metadata: {name: locks}")
	call(t, s, http.MethodPost, "/api/v1/namespaces/locks/serviceaccounts", "application/yaml", "metadata: {name: app}")
	var token struct{ Status struct{ Token string } }
	require.NoError(t, json.Unmarshal([]byte(call(t, s, http.MethodPost, "/api/v1/namespaces/locks/serviceaccounts/app/token",
		"application/yaml", "apiVersion: authentication.k8s.io/v1\nkind: TokenRequest\nspec: {expirationSeconds: 3600}")), &token))
	file := s.Kubeconfig(token.Status.Token)
	open := func() *locker.Client {
		c, err := locker.Open(t.Context(), "kubernetes://?kubeconfig="+file+"&namespace=locks&ttl=20s")
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	err := open().Mutex("x").Lock(t.Context())
	require.True(t, apierrors.IsForbidden(err), "%v", err)

	roles, err := os.ReadFile("rbac.yaml")
	require.NoError(t, err)
	role, binding, _ := strings.Cut(string(roles), "---\n")
	call(t, s, http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/namespaces/locks/roles", "application/yaml", role)
	call(t, s, http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/namespaces/locks/rolebindings", "application/yaml", binding)
	m := open().Mutex("x")
	eventually(t, "the role is known", func() bool { return m.Lock(t.Context()) == nil })
	require.NoError(t, m.Unlock(t.Context()))
	harness.Rights(t, open)
	_, err = locker.Open(t.Context(), "kubernetes://?kubeconfig="+file+"&context=none")
	require.Error(t, err)
}

// The Lease is what people and their tools expect.
func TestKube_whatIsStored(t *testing.T) {
	s := kube(t)
	c := openURL(t, s, "&ttl=20s")
	m := c.Mutex("orders/42", locker.WithMetadata("app@host"))
	require.NoError(t, m.Lock(t.Context()))
	path := apis + "default/leases/" + objectName(harness.Space(t)+":orders/42")
	var l coordinationv1.Lease
	require.NoError(t, json.Unmarshal([]byte(call(t, s, http.MethodGet, path, "", "")), &l))
	assert.True(t, strings.HasPrefix(*l.Spec.HolderIdentity, "app@host_"), *l.Spec.HolderIdentity)
	assert.EqualValues(t, 20, *l.Spec.LeaseDurationSeconds)
	assert.EqualValues(t, 1, *l.Spec.LeaseTransitions)
	assert.WithinDuration(t, time.Now(), l.Spec.RenewTime.Time, time.Minute)
	assert.Equal(t, harness.Space(t)+":orders/42", l.Annotations[nameKey])
	before := object{lease: &l}.written()
	assert.WithinDuration(t, time.Now(), before, time.Minute)

	// The API server's time of a write moves with each.
	eventually(t, "a renewal has a later time", func() bool {
		require.NoError(t, m.Extend(t.Context()))
		require.NoError(t, json.Unmarshal([]byte(call(t, s, http.MethodGet, path, "", "")), &l))
		return object{lease: &l}.written().After(before)
	})

	// Freed by hand.
	call(t, s, http.MethodPatch, path, "application/merge-patch+json", `{"spec":{"holderIdentity":null}}`)
	require.ErrorIs(t, m.Extend(t.Context()), locker.ErrLost)
	require.NoError(t, openURL(t, s, "&ttl=20s").Mutex("orders/42").TryLock(t.Context()))
}

// An update that arrives when its Lease was deleted makes none: the uid keeps it from that.
// client-go sends it, too. Without it, an API server makes the Lease.
func TestKube_anUpdateOfALeaseThatWasDeleted(t *testing.T) {
	s := kube(t)
	d := driverAt(t, s)
	req := driver.Request{Name: harness.Space(t) + ":x", TTL: 20 * time.Second}
	l, err := claims.Take(t.Context(), d, req)
	require.NoError(t, err)
	held := l.(*claim).latest()
	require.NoError(t, d.api.remove(t.Context(), held.lease))
	late := held.renewed(req.TTL, time.Now())
	_, err = d.api.lease(t.Context(), http.MethodPut, late.Name, late)
	require.True(t, changed(err), "%v", err)
	require.ErrorIs(t, l.Extend(t.Context(), req.TTL), driver.ErrLost)
	next, err := claims.Take(t.Context(), d, req)
	require.NoError(t, err)
	assert.Greater(t, next.Token(), l.Token(), "tokens survive the deletion")
	_, err = d.api.lease(t.Context(), http.MethodPut, late.Name, late)
	require.True(t, changed(err), "%v", err)

	require.NoError(t, d.api.remove(t.Context(), next.(*claim).latest().lease))
	late.UID = ""
	_, err = d.api.lease(t.Context(), http.MethodPut, late.Name, late)
	require.NoError(t, err, "this is why the uid is sent")
}

// Two API servers over one store: who waits at one is woken by a release at the other, and goes on
// when its own restarts.
func TestKube_twoServers(t *testing.T) {
	testwait.OnlyNightly(t, "make setup-nightly builds the server")
	s := testserver.Kube(t)
	second := s.Beside(t)
	a, b := openURL(t, s, "&ttl=3m").Mutex("x"), openURL(t, second, "&ttl=3m").Mutex("x")
	require.NoError(t, a.Lock(t.Context()))
	locked := async(func() error { return b.Lock(t.Context()) })
	time.Sleep(200 * time.Millisecond) // it waits
	began := time.Now()
	require.NoError(t, a.Unlock(t.Context()))
	require.NoError(t, await(t, locked))
	assert.Less(t, time.Since(began), time.Minute, "it was woken")
	require.NoError(t, b.Unlock(t.Context()))
	require.NoError(t, a.Lock(t.Context()))
	locked = async(func() error { return b.Lock(t.Context()) })
	time.Sleep(200 * time.Millisecond)
	second.RestartAlone()
	require.NoError(t, a.Unlock(t.Context()))
	require.NoError(t, await(t, locked))
}

// Bulk: List goes through all pages.
func TestKube_list(t *testing.T) {
	s := kube(t)
	c := openURL(t, s, "&ttl=10m")
	want := map[string]bool{}
	for i := range 520 { // more than a page
		name := strings.Repeat("x", i%7) + string(rune('a'+i%26)) + time.Duration(i).String()
		require.NoError(t, c.Mutex(name).TryLock(t.Context()))
		want[name] = true
	}
	got := map[string]bool{}
	for name, err := range c.List(t.Context(), "") {
		require.NoError(t, err)
		got[name] = true
	}
	assert.Equal(t, want, got)
}

func TestKube_inspect(t *testing.T) {
	s := kube(t)
	harness.Inspect(t, harness.Inspection{
		URL: "kubernetes://" + s.Addr() + "?kubeconfig=" + s.Kubeconfig(testserver.KubeAdmin), TTL: 2 * time.Second,
		Left: true, LastToken: true, TokenWhenWaited: true, IDs: true, TellsHolder: true, TellsMetadata: true,
	})
}
