// Package natslock keeps locks in a key-value bucket of NATS JetStream. It is an example of a
// driver: copy it, or import it for the scheme nats://. README.md says what its locks are worth,
// claim.go how they work.
package natslock

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
)

// Driver grants locks that are keys of one bucket.
type Driver struct {
	nc       *nats.Conn
	own      bool
	bucket   string
	replicas int
	found    atomic.Bool // the bucket is there
}

// New returns a Client whose locks are in bucket. The first use makes the bucket, if there is none.
func New(nc *nats.Conn, bucket string, opts ...locker.Option) (*locker.Client, error) {
	return locker.New(NewDriver(nc, bucket), opts...)
}

// NewDriver returns a Driver over nc, which the caller closes.
func NewDriver(nc *nats.Conn, bucket string) *Driver {
	return &Driver{nc: nc, bucket: bucket, replicas: 1}
}

func init() { driver.Register("nats", open) }

// open takes nats://user:password@host:port,host:port?bucket=locks&replicas=3. It does not fail if
// the servers are unreachable: the connection is made later.
func open(_ context.Context, u *driver.URL) (driver.Driver, error) {
	d := &Driver{own: true, bucket: "locks", replicas: 1}
	if bucket, ok := u.Take("bucket"); ok {
		d.bucket = bucket
	}
	if n, ok := u.Take("replicas"); ok {
		d.replicas, _ = strconv.Atoi(n)
	}
	switch {
	case strings.Trim(u.Path, "/") != "" || len(u.Hosts) == 0:
		return nil, fmt.Errorf("%v: want a host, and no path, as in nats://localhost:4222", u)
	case d.bucket == "" || strings.ContainsAny(d.bucket, ".*> \t\r\n") || d.replicas < 1 || d.replicas > 5:
		return nil, fmt.Errorf("%v: bucket is one word, and replicas a number from 1 to 5", u)
	}
	if err := u.Unknown(); err != nil {
		return nil, err
	}
	opts := []nats.Option{nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(100 * time.Millisecond), nats.PingInterval(time.Second)}
	if u.User != nil {
		password, _ := u.User.Password()
		opts = append(opts, nats.UserInfo(u.User.Username(), password))
	}
	var err error
	d.nc, err = nats.Connect("nats://"+strings.Join(u.Hosts, ",nats://"), opts...)
	return d, err
}

// Guarantees returns what a bucket promises.
func (d *Driver) Guarantees() driver.Guarantees {
	return driver.Guarantees{
		driver.Exclusive:      {Level: driver.LevelConditional, Condition: "while the servers' clocks do not jump"},
		driver.Failover:       {Condition: "three replicas answer when two have a write, but that is not tested here"},
		driver.Fencing:        {Level: driver.LevelYes},
		driver.FencingDurable: {Level: driver.LevelConditional, Condition: "if this driver makes the lost bucket again, where the clock is right"},
		driver.Ordered:        {Level: driver.LevelConditional, Condition: "while connections last, and at most a thousand wait for a name"},
		driver.Woken:          {Level: driver.LevelYes},
	}
}

// CheckTTL refuses a TTL that is not a number of whole seconds, which is what the server takes.
func (d *Driver) CheckTTL(ttl time.Duration) error {
	if ttl < time.Second || ttl%time.Second != 0 {
		return fmt.Errorf("%w: a TTL of %v: NATS takes whole seconds, from 1s", driver.ErrUnsupported, ttl)
	}
	return nil
}

// DefaultTTL leaves the default to the core.
func (d *Driver) DefaultTTL() time.Duration { return 0 }

// Close closes the connection, if the Driver has made it.
func (d *Driver) Close() error {
	if d.own {
		d.nc.Close()
	}
	return nil
}

// find looks for the bucket, once, and makes it if there is none.
func (d *Driver) find(ctx context.Context) error {
	if d.found.Load() {
		return nil
	}
	js, err := jetstream.New(d.nc)
	if err != nil {
		return err
	}
	stream, err := js.Stream(ctx, "KV_"+d.bucket)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = js.CreateStream(ctx, d.config())
	}
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // made at the same time
		stream, err = js.Stream(ctx, "KV_"+d.bucket)
	}
	if err != nil {
		return err
	}
	if c := stream.CachedInfo().Config; !c.AllowMsgTTL || c.SubjectDeleteMarkerTTL == 0 || c.MaxMsgsPerSubject != 1 || c.RePublish == nil {
		return fmt.Errorf("the bucket %s was not made by this driver: it wants TTLs, markers, a history of 1, and a republish", d.bucket)
	}
	d.found.Store(true)
	return nil
}

// config describes the bucket. Its revisions, which are the tokens, begin at the microseconds of
// the clock: so those of a bucket that is made again, after a loss of data, are larger than those
// that are forgotten.
func (d *Driver) config() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              "KV_" + d.bucket,
		Subjects:          []string{d.subject(">")},
		Replicas:          d.replicas,
		FirstSeq:          uint64(time.Now().UnixMicro()), //nolint:gosec // after 1970
		MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, AllowRollup: true, DenyDelete: true, AllowDirect: true,
		AllowMsgTTL: true, SubjectDeleteMarkerTTL: time.Second,
		RePublish: &jetstream.RePublish{Source: d.subject(">"), Destination: d.changes(">")},
	}
}

// subject returns the subject of a key.
func (d *Driver) subject(key string) string { return "$KV." + d.bucket + "." + key }

// changes returns the subject on which the servers publish what was stored at a key.
func (d *Driver) changes(key string) string { return "KVCHANGES." + d.bucket + "." + key }

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

// Inspect reads the lock and its queue, in one request. How much of the TTL is left the server does
// not tell.
func (d *Driver) Inspect(ctx context.Context, name string) (driver.State, error) {
	lock, waiters, err := d.look(ctx, name)
	if err != nil {
		return driver.State{}, err
	}
	s := driver.State{Held: lock.Owner != "", Token: lock.Token, Holder: participant(lock)}
	slices.SortFunc(waiters, func(a, b entry) int { return cmp.Compare(a.Place, b.Place) })
	for _, w := range waiters {
		if w.Owner != lock.Owner { // the holder leaves the queue after it was granted the lock
			s.Waiters = append(s.Waiters, participant(w))
		}
	}
	return s, nil
}

func held(lock entry) error {
	if lock.Owner == "" {
		return driver.ErrHeld // it is for the first waiter
	}
	return &driver.HeldError{Holder: participant(lock)}
}

func participant(e entry) driver.Participant {
	return driver.Participant{ID: e.Owner, Metadata: string(e.Metadata)}
}

// ForceRelease writes a free record over the hold that is shown.
func (d *Driver) ForceRelease(ctx context.Context, name string, shown driver.State) error {
	_, err := d.change(ctx, name, entry{}, func(lock entry) (record, time.Duration, error) {
		switch {
		case lock.Owner == "":
			return record{}, 0, driver.ErrNotHeld
		case shown.Token > 0 && lock.Token != shown.Token, shown.Holder.ID != "" && lock.Owner != shown.Holder.ID:
			return record{}, 0, held(lock)
		}
		return record{Name: name, Token: lock.Token}, freeTTL, nil
	})
	return err
}

// List goes through the locks in the order of their revisions. One that is extended meanwhile comes
// later, perhaps twice.
func (d *Driver) List(prefix string) driver.Pager {
	from := uint64(1)
	return func(ctx context.Context) (page driver.Page, err error) {
		entries, more, err := d.get(ctx, query{Next: d.subject("*.lock"), From: from, Batch: 256})
		for _, e := range entries {
			if from = e.seq + 1; e.Owner != "" && strings.HasPrefix(e.Name, prefix) {
				page.Names = append(page.Names, e.Name)
			}
		}
		page.Last = !more
		return page, err
	}
}
