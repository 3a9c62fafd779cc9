package s3_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/s3"
)

// relay stands before a store, and may answer in its place.
type relay struct {
	URL   string
	store http.Handler

	mu       sync.Mutex
	requests map[string]int
	instead  func(w http.ResponseWriter, r *http.Request)
}

// onEach runs a test on the fake, and on a real store.
func onEach(t *testing.T, test func(t *testing.T, r *relay)) {
	t.Helper()
	t.Run("in this process", func(t *testing.T) { test(t, relayTo(t, newFake())) })
	t.Run("versitygw", func(t *testing.T) { test(t, relayTo(t, versitygw(t))) })
}

func newFake() *fake { return &fake{objects: map[string]stored{}} }

// versitygw is a real store, through a proxy.
func versitygw(t testing.TB) http.Handler {
	t.Helper()
	testwait.OnlyNightly(t, "versitygw takes minutes to build; a fake answers the same")
	to := &url.URL{Scheme: "http", Host: testserver.SharedS3(t).Addr()}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host // which is signed
	}}
}

func relayTo(t testing.TB, store http.Handler) *relay {
	t.Helper()
	r := &relay{store: store, requests: map[string]int{}}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.URL = server.URL
	s3.Forget()
	return r
}

func (r *relay) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	if !request.URL.Query().Has("list-type") { // a sweep's, which a release may begin
		r.requests[request.Method]++
	}
	instead := r.instead
	r.mu.Unlock()
	if instead != nil {
		instead(w, request)
		return
	}
	r.store.ServeHTTP(w, request)
}

// answer has requests answered by f; nil: by the store.
func (r *relay) answer(f func(w http.ResponseWriter, r *http.Request)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.instead = f
}

// count returns how many requests f makes, by method.
func (r *relay) count(f func()) map[string]int {
	r.mu.Lock()
	r.requests = map[string]int{}
	r.mu.Unlock()
	f()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests
}

// client makes a client of the SDK, as a caller may have it: with retries.
func (r *relay) client(t testing.TB, opts ...func(*awss3.Options)) *awss3.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return awss3.New(awss3.Options{
		BaseEndpoint: &r.URL, Region: "us-east-1", UsePathStyle: true, HTTPClient: &http.Client{Transport: transport},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: testserver.S3AccessKey, SecretAccessKey: testserver.S3SecretKey}, nil
		}),
	}, opts...)
}

// driver makes a Driver with a folder of the test's own.
func (r *relay) driver(t testing.TB) *s3.Driver {
	t.Helper()
	d := s3.NewDriver(r.client(t), "bucket", t.Name()+"/"+rand.Text())
	t.Cleanup(func() { _ = d.Close() })
	return d.(*s3.Driver)
}

// lose has the store serve a request whose reply is lost: of the next n that match.
func lose(r *relay, n int32, method string) {
	r.answer(func(w http.ResponseWriter, request *http.Request) {
		if request.Method != method || atomic.AddInt32(&n, -1) < 0 {
			r.store.ServeHTTP(w, request)
			return
		}
		r.store.ServeHTTP(httptest.NewRecorder(), request)
		panic(http.ErrAbortHandler)
	})
}

// keepBody returns a function that makes copies of a request.
func keepBody(request *http.Request) (copied func() *http.Request) {
	body, _ := io.ReadAll(request.Body)
	ctx := context.WithoutCancel(request.Context())
	return func() *http.Request {
		c := request.Clone(ctx)
		c.Body = io.NopCloser(bytes.NewReader(body))
		return c
	}
}

// twice has the store serve each write twice, and tell of the second, as a proxy does that sends a
// request again.
func twice(r *relay) {
	r.answer(func(w http.ResponseWriter, request *http.Request) {
		copied := keepBody(request)
		if request.Method == http.MethodPut {
			r.store.ServeHTTP(httptest.NewRecorder(), copied())
		}
		r.store.ServeHTTP(w, copied())
	})
}

// delayed loses the writes that f sends. The last of them arrives when arrive is called, which
// returns the status of the answer.
func delayed(r *relay, f func()) (arrive func() int) {
	var last func() *http.Request
	r.answer(func(w http.ResponseWriter, request *http.Request) {
		if request.Method != http.MethodPut {
			r.store.ServeHTTP(w, request)
			return
		}
		last = keepBody(request)
		panic(http.ErrAbortHandler)
	})
	f()
	r.answer(nil)
	return func() int {
		w := httptest.NewRecorder()
		r.store.ServeHTTP(w, last())
		return w.Code
	}
}

// headers changes those of an answer before it is sent.
type headers struct {
	http.ResponseWriter

	change func()
}

func (h *headers) Write(text []byte) (int, error) {
	h.change()
	return h.ResponseWriter.Write(text)
}

func (h *headers) WriteHeader(status int) {
	h.change()
	h.ResponseWriter.WriteHeader(status)
}
