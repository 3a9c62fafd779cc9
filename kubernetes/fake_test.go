package kubernetes

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
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
	f.requests[r.Method]++
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
		code, result = refuse(f.late, metav1.StatusReasonTimeout)
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
	d, err := NewDriver(f.client(t), "default")
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d.(*backend)
}

// sent returns how many requests f makes, by method.
func (f *fake) sent(do func()) map[string]int {
	f.mu.Lock()
	f.requests = map[string]int{}
	f.mu.Unlock()
	do()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests
}
