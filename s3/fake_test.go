package s3_test

import (
	"crypto/md5"
	"crypto/rand"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

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
