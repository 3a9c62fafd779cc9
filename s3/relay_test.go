package s3

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/rand"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	smithyendpoints "github.com/aws/smithy-go/endpoints"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
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
func onEach(t *testing.T, test func(t *testing.T, r *relay, d *backend)) {
	t.Helper()
	t.Run("in this process", func(t *testing.T) { _, r, d := onFake(t); test(t, r, d) })
	t.Run("versitygw", func(t *testing.T) { r := relayTo(t, versitygw(t)); test(t, r, r.driver(t)) })
}

// onFake makes a Driver at a fake of its own.
func onFake(t testing.TB) (f *fake, r *relay, d *backend) {
	t.Helper()
	f = newFake()
	r = relayTo(t, f)
	d = r.driver(t)
	return f, r, d
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
	stores.Clear() // one may have an address that another had
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

// answer sets the handler of requests; nil: the store.
func (r *relay) answer(f func(w http.ResponseWriter, r *http.Request)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.instead = f
}

// on passes requests of a method to f, and those that f does not answer to the store.
func (r *relay) on(method string, f func(w http.ResponseWriter, r *http.Request) (answered bool)) {
	r.answer(func(w http.ResponseWriter, request *http.Request) {
		if request.Method != method || !f(w, request) {
			r.store.ServeHTTP(w, request)
		}
	})
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
func (r *relay) driver(t testing.TB) *backend {
	t.Helper()
	d := NewDriver(r.client(t), "bucket", t.Name()+"/"+rand.Text())
	t.Cleanup(func() { _ = d.Close() })
	return d.(*backend)
}

// lose has the store serve a request whose reply is lost: of the next n that match.
func lose(r *relay, n int32, method string) {
	r.on(method, func(_ http.ResponseWriter, request *http.Request) bool {
		if atomic.AddInt32(&n, -1) < 0 {
			return false
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
	r.on(http.MethodPut, func(w http.ResponseWriter, request *http.Request) bool {
		copied := keepBody(request)
		r.store.ServeHTTP(httptest.NewRecorder(), copied())
		r.store.ServeHTTP(w, copied())
		return true
	})
}

// delayed loses the writes that f sends. The last of them arrives when arrive is called, which
// returns the status of the answer.
func delayed(r *relay, f func()) (arrive func() int) {
	var last func() *http.Request
	r.on(http.MethodPut, func(_ http.ResponseWriter, request *http.Request) bool {
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

// mangle changes the answers to a method: to the first n of them.
func mangle(r *relay, n int32, method string, change func(said *httptest.ResponseRecorder)) {
	r.on(method, func(w http.ResponseWriter, request *http.Request) bool {
		if atomic.AddInt32(&n, -1) < 0 {
			return false
		}
		said := httptest.NewRecorder()
		r.store.ServeHTTP(said, request)
		change(said)
		maps.Copy(w.Header(), said.Header())
		w.WriteHeader(said.Code)
		_, _ = w.Write(said.Body.Bytes())
		return true
	})
}

func setETag(said *httptest.ResponseRecorder) { said.Header().Set("ETag", foreign) }

// foreign is the ETag of something else.
const foreign = `"0123456789abcdef0123456789abcdef"`

// without has the store never see a header, as if it did not know it. Requests are signed anew.
func without(t *testing.T, r *relay, header string) {
	t.Helper()
	r.on(http.MethodPut, func(_ http.ResponseWriter, request *http.Request) bool {
		request.Header.Del(header)
		request.Header.Del("Authorization")
		request.Header.Del("Accept-Encoding") // which the proxy sets, unsigned
		request.URL.Host, request.URL.Scheme = request.Host, "http"
		err := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }).SignHTTP(request.Context(),
			aws.Credentials{AccessKeyID: testserver.S3AccessKey, SecretAccessKey: testserver.S3SecretKey}, request,
			request.Header.Get("X-Amz-Content-Sha256"), "s3", "us-east-1", time.Now())
		assert.NoError(t, err)
		return false
	})
}

// There are stores that accept a condition and ignore it: two would hold a lock.
func TestSelfTest_ofAStoreThatIgnoresConditions(t *testing.T) {
	onEach(t, func(t *testing.T, r *relay, _ *backend) {
		for _, header := range []string{"If-None-Match", "If-Match"} {
			without(t, r, header)
			c, err := New(r.client(t), "bucket", t.Name())
			require.NoError(t, err)
			err = c.Mutex("name").Lock(t.Context())
			require.ErrorIs(t, err, locker.ErrUnsupported)
			require.ErrorContains(t, err, "ignores "+header)
			require.ErrorContains(t, err, "use a store with conditional writes")
			require.NoError(t, c.Close())
		}
		r.answer(nil)
		take(t, r.driver(t), "name")
	})
}

// A failure tells nothing of the store: the next request tries again.
func TestSelfTest_thatIsNotAnswered(t *testing.T) {
	_, r, d := onFake(t)
	r.answer(func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusServiceUnavailable, "SlowDown") })
	_, err := d.Claim(request("name")).Ask(t.Context())
	require.ErrorContains(t, err, "self-test")
	require.NotErrorIs(t, err, locker.ErrUnsupported)
	r.answer(nil)
	take(t, d, "name")
}

// A self-test that has failed leaves no object, and touches none of a lock. It is cleaned up in the
// background, within a limit, and not once the Driver is closed.
func TestSelfTest_leavesNothing(t *testing.T) {
	f, r, d := onFake(t)
	client := d.http
	d.http = doer(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodDelete && r.Header.Get("If-Match") == "" || r.URL.Query().Has("list-type") {
			_, ends := r.Context().Deadline()
			assert.True(t, ends, "%s %s has no limit", r.Method, r.URL)
		}
		return client.Do(r)
	})
	take(t, d, "name")
	locks := f.keys()
	require.Len(t, locks, 1)
	require.NoError(t, d.sweep(t.Context()))
	without(t, r, "If-None-Match")
	fails := func() { require.ErrorContains(t, asked(t, d, "another"), "ignores If-None-Match") }
	d.store.tested.Store(0)
	fails()
	patience.Until(t, "only the lock's object is left", func() bool { return slices.Equal(locks, f.keys()) })
	require.NoError(t, d.Close())
	assert.Zero(t, r.count(fails)["DELETE"])
}

// doer is a client for HTTP.
type doer func(*http.Request) (*http.Response, error)

func (f doer) Do(r *http.Request) (*http.Response, error) { return f(r) }

// A store that falls silent within the self-test keeps neither Lock nor Close.
func TestSelfTest_ofAStoreThatFallsSilent(t *testing.T) {
	for heard := range 7 {
		r := relayTo(t, newFake())
		silent, over := make(chan struct{}), make(chan struct{})
		t.Cleanup(func() { close(over) })
		var requests atomic.Int32
		r.answer(func(w http.ResponseWriter, request *http.Request) {
			if n := int(requests.Add(1)); n > heard {
				if n == heard+1 {
					close(silent)
				}
				<-over
				return
			}
			r.store.ServeHTTP(w, request)
		})
		d := NewDriver(r.client(t), "bucket", t.Name())
		ctx, cancel := context.WithCancel(t.Context())
		result := testwait.Go(func() error {
			_, err := d.Claim(request("name")).Ask(ctx)
			return errors.Join(err, d.Close())
		})
		<-silent
		cancel()
		soon := testwait.Patience(5 * time.Second) // half of what the clean-up may take
		require.ErrorIs(t, soon.Result(t, result), context.Canceled, "after %d requests", heard)
	}
}

// Clients that may reach different stores do not share a self-test.
func TestSelfTest_ofClientsWithEndpointResolvers(t *testing.T) {
	good, bad := relayTo(t, newFake()), relayTo(t, newFake())
	without(t, bad, "If-Match")
	to := func(r *relay) *backend {
		d := NewDriver(r.client(t, func(o *awss3.Options) {
			o.BaseEndpoint = nil
			o.EndpointResolverV2 = resolver(r.URL)
		}), "bucket", t.Name())
		t.Cleanup(func() { _ = d.Close() })
		return d.(*backend)
	}
	take(t, to(good), "name")
	require.ErrorContains(t, asked(t, to(bad), "name"), "ignores If-Match")
}

type resolver string

func (r resolver) ResolveEndpoint(context.Context, awss3.EndpointParameters) (smithyendpoints.Endpoint, error) {
	u, err := url.Parse(string(r) + "/bucket")
	return smithyendpoints.Endpoint{URI: *u}, err
}

// A store is tested anew each hour, and one that is busy then is trusted for longer.
func TestSelfTest_isRepeated(t *testing.T) {
	_, r, d := onFake(t)
	take(t, d, "a")
	d.store.tested.Store(0)
	assert.Equal(t, 5, r.count(func() { take(t, d, "b") })["PUT"])
	assert.Equal(t, 1, r.count(func() { take(t, d, "c") })["PUT"])
	d.store.tested.Store(0)
	r.on(http.MethodPut, func(w http.ResponseWriter, request *http.Request) (selfTest bool) {
		if selfTest = strings.Contains(request.URL.Path, "self-test"); selfTest {
			answer(w, http.StatusServiceUnavailable, "SlowDown")
		}
		return selfTest
	})
	take(t, d, "d")
	without(t, r, "If-Match")
	require.ErrorIs(t, asked(t, d, "e"), locker.ErrUnsupported)
}

// fake is object storage in this process: one bucket, with conditional writes. It is for tests that
// need its clock, or an answer of their own; it proves nothing of a real store.
type fake struct {
	mu      sync.Mutex
	objects map[string]stored
	ahead   time.Duration   // of its clock
	still   time.Time       // if it is set, the time
	random  bool            // ETags are no MD5
	markers map[string]bool // if it is set, of deletions, and what has one is never new again
}

type stored struct {
	text    []byte
	etag    string
	written time.Time
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now().Add(f.ahead)
	if !f.still.IsZero() {
		now = f.still
	}
	w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
	key := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/bucket"), "/")
	o, exists := f.objects[key]
	over, fresh := r.Header.Get("If-Match"), r.Header.Get("If-None-Match") == "*"
	switch {
	case !strings.HasPrefix(r.URL.Path, "/bucket"):
		answer(w, http.StatusNotFound, "NoSuchBucket")
	case r.Method == http.MethodGet && key == "":
		f.list(w, r)
	case !exists && (over != "" || r.Method == http.MethodGet):
		answer(w, http.StatusNotFound, "NoSuchKey")
	case (exists || f.markers[key]) && fresh, over != "" && over != o.etag:
		answer(w, http.StatusPreconditionFailed, "PreconditionFailed")
	case r.Method == http.MethodGet:
		w.Header().Set("Last-Modified", o.written.UTC().Format(http.TimeFormat))
		w.Header().Set("ETag", o.etag)
		_, _ = w.Write(o.text)
	case r.Method == http.MethodPut:
		sum := md5.Sum(text)
		o = stored{text, `"` + hex.EncodeToString(sum[:]) + `"`, now}
		if f.random {
			o.etag = `"` + rand.Text() + `"`
		}
		f.objects[key] = o
		w.Header().Set("ETag", o.etag)
		w.WriteHeader(http.StatusOK)
	case r.Method == http.MethodDelete:
		delete(f.objects, key)
		if f.markers != nil {
			f.markers[key] = true
			w.Header().Set("X-Amz-Delete-Marker", "true")
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

func (f *fake) list(w http.ResponseWriter, r *http.Request) {
	type content struct {
		Key, LastModified string
	}
	var result struct {
		XMLName  xml.Name `xml:"ListBucketResult"`
		Contents []content
	}
	for key, o := range f.objects {
		if strings.HasPrefix(key, r.URL.Query().Get("prefix")) {
			result.Contents = append(result.Contents, content{key, o.written.UTC().Format(time.RFC3339)})
		}
	}
	_ = xml.NewEncoder(w).Encode(result)
}

func answer(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, code)
}

// forward moves the clock.
func (f *fake) forward(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ahead += d
}

// encrypt has ETags be no MD5 of the text from now on, as in a bucket with dsse.
func (f *fake) encrypt() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.random = true
}

// keys returns the keys of all objects.
func (f *fake) keys() (keys []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key := range f.objects {
		keys = append(keys, key)
	}
	return keys
}

// text returns that of the only object.
func (f *fake) text() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range f.objects {
		return o.text
	}
	return nil
}

func (f *fake) remove(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.objects, key)
	if f.markers != nil {
		f.markers[key] = true
	}
}

// set has the clock show now, and stand still.
func (f *fake) set(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.still = now
}
