package kubernetes

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// fake is an API for Leases, written for these tests: resourceVersions, UIDs, managedFields and
// watches as an API server has them. It shows how a Driver behaves when it is told this or that,
// and proves nothing of Kubernetes: TestConformance does, on the real server.
type fake struct {
	*httptest.Server

	mu       sync.Mutex
	changed  *sync.Cond
	version  int
	leases   map[string]*coordinationv1.Lease
	events   []event
	requests map[string]int // by method, or WATCH

	slow   time.Duration                                                // before a request is applied that is no watch
	ahead  atomic.Int64                                                 // nanoseconds, by which its clock is
	refuse int                                                          // a status with which it answers, as a proxy does, if that is not 0
	late   int                                                          // a status with which it answers what it has applied, if that is not 0
	why    metav1.StatusReason                                          // of that
	lose   func(method string, applied bool) (lost bool)                // breaks the connection, before the request is applied or after
	answer func(w http.ResponseWriter, r *http.Request) (answered bool) // in place of the API server
	admit  func(l *coordinationv1.Lease)                                // changes what is written, as an admission policy does
}

type event struct {
	Type   string                `json:"type"`
	Object *coordinationv1.Lease `json:"object"`
}

func newFake(t testing.TB) *fake {
	t.Helper()
	f := &fake{leases: map[string]*coordinationv1.Lease{}, requests: map[string]int{}, version: 1000}
	f.changed = sync.NewCond(&f.mu)
	f.Server = httptest.NewTLSServer(http.HandlerFunc(f.serve))
	t.Cleanup(func() {
		f.CloseClientConnections()
		f.Close()
	})
	return f
}

// set changes f while it serves nobody.
func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// refuses has f answer with a status, as a proxy does; 0: with what it has.
func (f *fake) refuses(status int) { f.set(func() { f.refuse = status }) }

// answers has requests of some methods answered in place of f.
func (f *fake) answers(answer http.HandlerFunc, methods ...string) {
	f.set(func() {
		f.answer = func(w http.ResponseWriter, r *http.Request) (answered bool) {
			if answered = slices.Contains(methods, r.Method); answered {
				answer(w, r)
			}
			return answered
		}
	})
}

// denies has requests of some methods refused, as an API server does.
func (f *fake) denies(code int, reason metav1.StatusReason, methods ...string) {
	f.answers(func(w http.ResponseWriter, _ *http.Request) {
		code, status := refuse(code, reason)
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(status)
	}, methods...)
}

// count returns how many requests of a method, or WATCH, there were.
func (f *fake) count(method string) (n int) {
	f.set(func() { n = f.requests[method] })
	return n
}

func (f *fake) now() time.Time { return time.Now().Add(time.Duration(f.ahead.Load())) }

func (f *fake) serve(w http.ResponseWriter, r *http.Request) {
	if !r.URL.Query().Has("watch") {
		time.Sleep(f.slow)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	_, name, _ := strings.Cut(r.URL.Path, "/leases")
	name = strings.TrimPrefix(name, "/")
	if f.answer != nil && f.answer(w, r) {
		f.requests[r.Method]++
		return
	}
	if r.URL.Query().Has("watch") {
		f.requests["WATCH"]++
		f.watch(w, r)
		return
	}
	if name != "" || r.Method != http.MethodGet { // a sweep's list, which a take may begin
		f.requests[r.Method]++
	}
	if f.lose != nil && f.lose(r.Method, false) {
		panic(http.ErrAbortHandler)
	}
	code, result := f.refuse, any("not a Status")
	if code == 0 {
		code, result = f.apply(r, name)
	} else if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	if f.late != 0 {
		code, result = refuse(f.late, f.why)
	}
	if f.lose != nil && f.lose(r.Method, true) {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Date", f.now().UTC().Format(http.TimeFormat))
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(result)
}

func refuse(code int, reason metav1.StatusReason) (int, any) {
	return code, metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: string(reason)}
}

// apply does what a request asks for. The caller holds f.mu.
func (f *fake) apply(r *http.Request, name string) (int, any) {
	var sent coordinationv1.Lease
	if r.Method == http.MethodPost || r.Method == http.MethodPut {
		if json.NewDecoder(r.Body).Decode(&sent) != nil {
			return refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest)
		}
		name = sent.Name
		if f.admit != nil {
			f.admit(&sent)
		}
	}
	old, exists := f.leases[name]
	switch r.Method {
	case http.MethodGet:
		if name == "" {
			list := coordinationv1.LeaseList{}
			for _, l := range f.leases {
				list.Items = append(list.Items, *l)
			}
			return http.StatusOK, list
		}
		if !exists {
			return refuse(http.StatusNotFound, metav1.StatusReasonNotFound)
		}
		return http.StatusOK, old
	case http.MethodPost:
		if exists {
			return refuse(http.StatusConflict, metav1.StatusReasonAlreadyExists)
		}
		sent.UID = types.UID(strconv.Itoa(f.version))
		return http.StatusCreated, f.store("ADDED", &sent)
	case http.MethodPut:
		if !exists || old.UID != sent.UID || old.ResourceVersion != sent.ResourceVersion {
			return refuse(http.StatusConflict, metav1.StatusReasonConflict)
		}
		return http.StatusOK, f.store("MODIFIED", &sent)
	default:
		var options metav1.DeleteOptions
		_ = json.NewDecoder(r.Body).Decode(&options)
		if p := options.Preconditions; !exists || p != nil && (*p.UID != old.UID || *p.ResourceVersion != old.ResourceVersion) {
			return refuse(http.StatusConflict, metav1.StatusReasonConflict)
		}
		f.store("DELETED", old.DeepCopy())
		delete(f.leases, name)
		return http.StatusOK, metav1.Status{Status: metav1.StatusSuccess}
	}
}

// renewal is what is managed by who has set renewTime.
var renewal = metav1.NewFieldsV1(`{"f:spec":{"f:renewTime":{}}}`)

// store is one change. The caller holds f.mu.
func (f *fake) store(what string, l *coordinationv1.Lease) *coordinationv1.Lease {
	f.version++
	l.ResourceVersion = strconv.Itoa(f.version)
	now := metav1.Time{Time: f.now().Truncate(time.Second)}
	l.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager, Time: &now, FieldsV1: renewal}}
	if what == "ADDED" {
		l.CreationTimestamp = now
	}
	f.leases[l.Name] = l
	f.events = append(f.events, event{what, l})
	f.changed.Broadcast()
	return l
}

// watch tells of one Lease. The caller holds f.mu.
func (f *fake) watch(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	from := versionOf(r.URL.Query().Get("resourceVersion"))
	ended := false
	stop := context.AfterFunc(r.Context(), func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		ended = true
		f.changed.Broadcast()
	})
	defer stop()
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for next := 0; !ended; f.changed.Wait() {
		for ; next < len(f.events); next++ {
			if e := f.events[next]; e.Object.Name == name && versionOf(e.Object.ResourceVersion) > from {
				_ = json.NewEncoder(w).Encode(e)
				w.(http.Flusher).Flush()
			}
		}
	}
}

func versionOf(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

// url ends with a query.
func (f *fake) url(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*f.kubeconfig(), file))
	return "kubernetes://%s?kubeconfig=" + file
}

// kubeconfig has all but the address.
func (f *fake) kubeconfig() *clientcmdapi.Config {
	config := clientcmdapi.NewConfig()
	config.Clusters["fake"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1", CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{
		Type: "CERTIFICATE", Bytes: f.Certificate().Raw,
	})}
	config.Contexts["fake"] = &clientcmdapi.Context{Cluster: "fake", Namespace: "default"}
	config.CurrentContext = "fake"
	return config
}

// client is what an application has.
func (f *fake) client(t testing.TB) rest.Interface {
	t.Helper()
	base, err := url.Parse(f.URL)
	require.NoError(t, err)
	transport := &http.Transport{TLSClientConfig: f.Client().Transport.(*http.Transport).TLSClientConfig}
	c, err := rest.NewRESTClient(base, "", rest.ClientContentConfig{}, nil, &http.Client{Transport: transport})
	require.NoError(t, err)
	t.Cleanup(transport.CloseIdleConnections)
	return c
}

func (f *fake) driver(t testing.TB) *backend {
	t.Helper()
	return testwait.Closed(NewDriver(f.client(t), "default"))(t).(*backend)
}

// sent returns how many requests f makes, by method.
func (f *fake) sent(do func()) map[string]int {
	f.set(func() { f.requests = map[string]int{} })
	do()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests
}

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
	return testwait.Closed(locker.Open(t.Context(), "kubernetes://"+s.Addr()+"?kubeconfig="+s.Kubeconfig(testserver.KubeAdmin)+parameters, locker.WithPrefix(harness.Space(t))))(t)
}

func driverAt(t *testing.T, s *testserver.KubeServer) *backend {
	t.Helper()
	u, err := driver.ParseURL("kubernetes://" + s.Addr() + "?kubeconfig=" + s.Kubeconfig(testserver.KubeAdmin))
	require.NoError(t, err)
	return testwait.Closed(open(t.Context(), u))(t).(*backend)
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
		return testwait.Closed(locker.Open(t.Context(), "kubernetes://?kubeconfig="+file+"&namespace=locks&ttl=20s"))(t)
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
	for _, meanwhile := range []func(){func() {}, second.Restart} {
		require.NoError(t, a.Lock(t.Context()))
		locked := async(func() error { return b.Lock(t.Context()) })
		time.Sleep(200 * time.Millisecond) // it waits
		meanwhile()
		require.NoError(t, a.Unlock(t.Context()))
		require.NoError(t, await(t, locked), "long before it would look")
		require.NoError(t, b.Unlock(t.Context()))
	}
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
