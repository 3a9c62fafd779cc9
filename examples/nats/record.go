package natslock

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// record is the value of a key. Without an Owner a lock is free, and a place is given up.
type record struct {
	Name     string `json:"name,omitempty"`
	Owner    string `json:"owner,omitempty"`
	Metadata []byte `json:"metadata,omitempty"`
	Token    uint64 `json:"token,omitempty"`    // of a hold, or of the last one of a free lock; the first record of a hold has none, because its revision is the token
	Place    uint64 `json:"place,omitempty"`    // of a waiter; its first record has none
	Released string `json:"released,omitempty"` // the owner that released the lock last
}

// entry is a record that is stored. A revision of 0 means that there is none.
type entry struct {
	record

	key string // D.lock, or D.ID for a waiter, where D is a digest of the name
	seq uint64 // its revision, which is one more for each write to the bucket
}

// errChanged means that a key does not have the revision that a write expects.
var errChanged = errors.New("the key has changed")

// digest makes the first part of a key of a name, which may have any characters.
func digest(name string) string {
	sum := sha256.Sum256([]byte(name))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func (d *Driver) message(key string, r record, ttl time.Duration) *nats.Msg {
	m := nats.NewMsg(d.subject(key))
	m.Data, _ = json.Marshal(r) // cannot fail
	m.Header.Set(jetstream.MsgTTLHeader, ttl.String())
	if r.Owner == "" {
		m.Header.Set("KV-Operation", "PURGE") // the server leaves no marker when this expires
	}
	return m
}

// anyRevision is for a write of a key that nobody else writes.
const anyRevision = -1

// put stores r at key if that has the revision expected, or else returns errChanged. It returns the
// new revision.
func (d *Driver) put(ctx context.Context, key string, r record, ttl time.Duration, expected int64) (uint64, error) {
	if err := d.find(ctx); err != nil {
		return 0, err
	}
	m := d.message(key, r, ttl)
	if expected != anyRevision {
		m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatInt(expected, 10))
	}
	reply, err := d.nc.RequestMsgWithContext(ctx, m)
	if err != nil {
		return 0, d.failed(err)
	}
	var ack struct {
		Seq   uint64
		Error *jetstream.APIError
	}
	if err := json.Unmarshal(reply.Data, &ack); err != nil || ack.Error == nil {
		return ack.Seq, err
	}
	if code := ack.Error.ErrorCode; code == jetstream.JSErrCodeStreamWrongLastSequence || code == 10164 { // in a cluster, while another write is under way
		return 0, errChanged
	}
	return 0, ack.Error
}

// change writes what next makes of the last record of the lock, which is last if that is not zero.
// If it has changed meanwhile, next is asked again. A TTL of 0 means that there is nothing to do.
func (d *Driver) change(ctx context.Context, name string, last entry, next func(lock entry) (record, time.Duration, error)) (uint64, error) {
	for {
		if last.seq == 0 {
			var err error
			if last, _, err = d.look(ctx, name); err != nil {
				return 0, err
			}
		}
		r, ttl, err := next(last)
		if err != nil || ttl == 0 {
			return 0, err
		}
		seq, err := d.put(ctx, digest(name)+".lock", r, ttl, int64(last.seq))
		if !errors.Is(err, errChanged) {
			return seq, err
		}
		last = entry{}
	}
}

// failed has the bucket looked for again if no server has it.
func (d *Driver) failed(err error) error {
	if errors.Is(err, nats.ErrNoResponders) {
		d.found.Store(false)
	}
	return err
}

// query asks for the last records of keys, or for some of them from a revision on.
type query struct {
	Last  []string `json:"multi_last,omitempty"`
	Next  string   `json:"next_by_subj,omitempty"`
	From  uint64   `json:"seq,omitempty"`
	Batch int      `json:"batch,omitempty"`
}

// get makes one request, to which each record is a reply. more is set if there are others.
func (d *Driver) get(ctx context.Context, q query) (entries []entry, more bool, err error) {
	if err := d.find(ctx); err != nil {
		return nil, false, err
	}
	sub, err := d.nc.SubscribeSync(d.nc.NewInbox())
	if err != nil {
		return nil, false, err
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection is closed
	body, _ := json.Marshal(q)
	if err := d.nc.PublishRequest("$JS.API.DIRECT.GET.KV_"+d.bucket, sub.Subject, body); err != nil {
		return nil, false, err
	}
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return nil, false, d.failed(err)
		}
		switch status := m.Header.Get("Status"); status {
		case "":
			e, err := parse(m)
			if err != nil {
				return nil, false, err
			}
			entries = append(entries, e)
		case "204", "404": // the end, nothing
			return entries, status == "204" && m.Header.Get("Nats-Num-Pending") != "0", nil
		default:
			return nil, false, fmt.Errorf("nats: %s %s", status, m.Header.Get("Description"))
		}
	}
}

// parse reads a record that a server has sent. A marker for one that has expired has no data.
func parse(m *nats.Msg) (e entry, err error) {
	_, e.key, _ = strings.Cut(strings.TrimPrefix(m.Header.Get(jetstream.SubjectHeader), "$KV."), ".")
	if e.seq, err = strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64); err == nil && len(m.Data) > 0 {
		err = json.Unmarshal(m.Data, &e.record)
	}
	if e.Owner != "" {
		e.Token, e.Place = cmp.Or(e.Token, e.seq), cmp.Or(e.Place, e.seq)
	}
	return e, err
}

// look returns the record of a lock, and those of its waiters.
func (d *Driver) look(ctx context.Context, name string) (lock entry, waiters []entry, err error) {
	entries, _, err := d.get(ctx, query{Last: []string{d.subject(digest(name) + ".*")}})
	for _, e := range entries {
		switch {
		case strings.HasSuffix(e.key, ".lock"):
			lock = e
		case e.Owner != "":
			waiters = append(waiters, e)
		}
	}
	return lock, waiters, err
}
