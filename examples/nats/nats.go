// Package natslock keeps locks in a key-value bucket of NATS JetStream. It is an example of a
// driver: copy it, or import it for the scheme nats://. README.md says what its locks are worth,
// and how they work.
package natslock

import (
	"context"
	"errors"
	"fmt"
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
