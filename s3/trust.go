package s3

import (
	"context"
	"crypto/md5"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/go-locker/locker/driver"
)

// store is a bucket, as far as this process has tried what it does with conditions.
type store struct {
	turn   chan struct{} // has a place for the one who tries
	found  atomic.Pointer[habits]
	tested atomic.Int64 // when, in Unix seconds; 0: it is to be tried anew
}

// trusted is for how many seconds a store is believed to do as it did: one may be changed, or one
// node of several be another.
const trusted = 3600

// habits are those of a store that heeds the conditions of a write.
type habits struct {
	deletes bool // it compares before it deletes, too, and leaves no marker
	digests bool // an ETag is the MD5 of the text
}

var stores sync.Map // of *store, by endpoint, region and bucket

// storeOf returns what clients of one endpoint share. Only the caller knows where a resolver leads.
func storeOf(o s3.Options, bucket string) *store {
	s := &store{turn: make(chan struct{}, 1)}
	known := reflect.TypeOf(s3.NewDefaultEndpointResolverV2())
	if o.EndpointResolver != nil || reflect.TypeOf(o.EndpointResolverV2) != known { //nolint:staticcheck // callers may still set it
		return s
	}
	shared, _ := stores.LoadOrStore(aws.ToString(o.BaseEndpoint)+" "+o.Region+" "+bucket, s)
	return shared.(*store)
}

// fresh reports whether the store was tried not long ago.
func (s *store) fresh() bool {
	return s.found.Load() != nil && time.Now().Unix()-s.tested.Load() < trusted
}

// trust tries whether the store heeds conditions, each hour for each bucket and process: there are
// stores that accept the headers and ignore them.
func (d *backend) trust(ctx context.Context) error {
	s := d.store
	if s.fresh() {
		return nil
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.fresh() {
		return nil
	}
	h, err := d.try(ctx)
	switch {
	case err == nil:
		s.tested.Store(time.Now().Unix())
		s.found.Store(h)
	case errors.Is(err, driver.ErrUnsupported):
		s.found.Store(nil)
	case s.found.Load() != nil:
		return nil // that it was not answered says nothing
	}
	return err
}

// try writes an object of its own, and removes it.
func (d *backend) try(ctx context.Context) (h *habits, err error) {
	r := record{Name: "self-test:" + rand.Text(), Released: true, Request: "1"}
	other := r
	other.Request = "2"
	text, _ := json.Marshal(r)
	key := d.key(r.Name)
	defer func() {
		if err != nil {
			d.discard(key)
		}
	}()
	first, err := d.write(ctx, key, "", r)
	if err != nil {
		return nil, fmt.Errorf("self-test: %w", err)
	}
	h = &habits{digests: first == digest(text)}
	if _, err = d.write(ctx, key, "", other); !errors.Is(err, errRefused) {
		return nil, d.distrust("If-None-Match: *", err)
	}
	second, err := d.write(ctx, key, first, other)
	if err != nil {
		return nil, fmt.Errorf("self-test: a write with If-Match and the object's ETag: %w", err)
	}
	r.Request = "3"
	if _, err = d.write(ctx, key, first, r); !errors.Is(err, errRefused) {
		return nil, d.distrust("If-Match", err)
	}
	if _, err := d.delete(ctx, key, first); errors.Is(err, errRefused) {
		marker, _ := d.delete(ctx, key, second) // else a sweep does
		h.deletes = !marker
	}
	return h, nil
}

// discard deletes the object of a self-test that has failed, in the background: the caller's time
// may be over.
func (d *backend) discard(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open.Err() != nil {
		return
	}
	d.background.Go(func() {
		ctx, cancel := context.WithTimeout(d.open, 10*time.Second)
		defer cancel()
		_, _ = d.delete(ctx, key, "")
	})
}

// distrust is for a write that was to be refused.
func (d *backend) distrust(header string, err error) error {
	if err != nil {
		return fmt.Errorf("self-test: %w", err)
	}
	return fmt.Errorf("%w: the store of bucket %s ignores %s: of two writes both succeed, so that two can hold a lock; "+
		"use a store with conditional writes", driver.ErrUnsupported, d.bucket, header)
}

// torn reports whether a read has the ETag of another write than the text is of.
func (s *store) torn(o object) bool {
	h := s.found.Load()
	return h != nil && h.digests && o.etag != o.digest
}

// mistaken reports whether etag cannot be that of a write over the ETag over, of a text with digest.
func (s *store) mistaken(etag, over, digest string) bool {
	h := s.found.Load()
	return etag == "" || etag == over || h != nil && h.digests && etag != digest
}

// noDigests notes that the store's ETags are no MD5 any more.
func (s *store) noDigests() {
	if h := s.found.Load(); h != nil {
		s.found.CompareAndSwap(h, &habits{deletes: h.deletes})
	}
}

func digest(text []byte) string { return fmt.Sprintf(`"%x"`, md5.Sum(text)) }

// delete deletes an object if its ETag is over; "" is any. It reports whether the store has left a
// marker in its place, as in a bucket with versions.
func (d *backend) delete(ctx context.Context, key, over string) (marker bool, err error) {
	in := &s3.DeleteObjectInput{Bucket: &d.bucket, Key: &key}
	if over != "" {
		in.IfMatch = &over
	}
	out, err := d.client.DeleteObject(ctx, in, d.plain)
	switch {
	case refused(err):
		return false, errRefused
	case err != nil:
		return false, err
	}
	return aws.ToBool(out.DeleteMarker), nil
}
