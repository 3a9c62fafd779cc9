package s3

import (
	"context"
	"crypto/md5"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/go-locker/locker/driver"
)

// store is a bucket, as far as this process has tried what it does with conditions.
type store struct {
	testing chan struct{} // has a place for the one who tries

	mu      sync.Mutex
	trusted bool
	deletes bool // it compares before it deletes, too
	digests bool // an ETag is the MD5 of the text, so that a read which has met a write shows it
}

var stores sync.Map // of *store, by endpoint, region and bucket

func storeOf(address string) *store {
	s, _ := stores.LoadOrStore(address, &store{testing: make(chan struct{}, 1)})
	return s.(*store)
}

func (s *store) known() (trusted, deletes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trusted, s.deletes
}

// tells reports whether etag may be that of text.
func (s *store) tells(text []byte, etag string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.digests || etag == digest(text)
}

func digest(text []byte) string { return fmt.Sprintf("%q", fmt.Sprintf("%x", md5.Sum(text))) }

// trust tries whether the store heeds the conditions of a write, once for each bucket and process:
// there are stores that accept the headers and ignore them.
func (d *Driver) trust(ctx context.Context) error {
	s := d.store
	if trusted, _ := s.known(); trusted {
		return nil
	}
	select {
	case s.testing <- struct{}{}:
		defer func() { <-s.testing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if trusted, _ := s.known(); trusted {
		return nil
	}
	deletes, digests, err := d.try(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trusted, s.deletes, s.digests = true, deletes, digests
	return nil
}

// try writes an object of its own, and removes it.
func (d *Driver) try(ctx context.Context) (deletes, digests bool, err error) {
	r := record{Name: "self-test:" + rand.Text(), Released: true, Request: "1"}
	again := r
	again.Request = "2"
	key := d.key(r.Name)
	text, _ := json.Marshal(r)
	first, err := d.write(ctx, key, "", r)
	if err != nil {
		return false, false, fmt.Errorf("self-test: %w", err)
	}
	defer func() {
		if err != nil {
			_ = d.delete(context.WithoutCancel(ctx), key, "")
		}
	}()
	digests = first == digest(text)
	if _, err = d.write(ctx, key, "", again); !errors.Is(err, errRefused) {
		return false, false, d.distrust("If-None-Match: *", err)
	}
	second, err := d.write(ctx, key, first, again)
	if err != nil {
		return false, false, fmt.Errorf("self-test: a write with If-Match and the object's ETag: %w", err)
	}
	if _, err = d.write(ctx, key, first, r); !errors.Is(err, errRefused) {
		return false, false, d.distrust("If-Match", err)
	}
	if err = d.delete(ctx, key, first); errors.Is(err, errRefused) {
		return true, digests, d.delete(ctx, key, second)
	}
	return false, digests, nil // it is gone, or a lifecycle rule deletes it
}

// distrust is for a write that was to be refused.
func (d *Driver) distrust(header string, err error) error {
	if err != nil {
		return fmt.Errorf("self-test: %w", err)
	}
	return fmt.Errorf("%w: the store of bucket %s ignores %s: of two writes both succeed, so that two can hold a lock; "+
		"use a store with conditional writes", driver.ErrUnsupported, d.bucket, header)
}

// delete deletes an object if its ETag is over; "" is any.
func (d *Driver) delete(ctx context.Context, key, over string) error {
	in := &s3.DeleteObjectInput{Bucket: &d.bucket, Key: &key}
	if over != "" {
		in.IfMatch = &over
	}
	switch _, err := d.client.DeleteObject(ctx, in, plain); {
	case err == nil:
		return nil
	case refused(err):
		return errRefused
	default:
		return d.failed("delete", key, err)
	}
}
