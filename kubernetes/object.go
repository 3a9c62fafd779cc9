package kubernetes

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/go-locker/locker/driver"
)

// What a Lease has beside its spec. The label selects Leases of this package.
const (
	domain       = "go-locker.github.io/"
	nameKey      = domain + "name"
	tokenKey     = domain + "token"
	metadataKey  = domain + "metadata"
	releasedKey  = domain + "released-by"
	managerLabel = "app.kubernetes.io/managed-by"
	manager      = "locker"
)

// object is a Lease as an API server returned it. It is never changed.
type object struct {
	lease   *coordinationv1.Lease
	date    time.Time     // the server's time then, or a moment later; zero if it did not say
	version uint64        // its resourceVersion
	owner   string        // who holds it; "" if nobody does
	ttl     time.Duration // of that hold
	token   uint64        // the last one that was granted
}

// parse fails for a Lease whose resourceVersion is no number, for no token can be made of it.
func parse(lease *coordinationv1.Lease, date time.Time) (object, error) {
	o := object{lease: lease, date: date}
	var err error
	if o.version, err = strconv.ParseUint(lease.ResourceVersion, 10, 63); err != nil {
		return object{}, fmt.Errorf("the Lease %s has the resourceVersion %q, which is no number", lease.Name, lease.ResourceVersion)
	}
	o.token, _ = strconv.ParseUint(lease.Annotations[tokenKey], 10, 63) // 0 if there is none
	if s := lease.Spec; s.HolderIdentity != nil && s.LeaseDurationSeconds != nil {
		o.owner = (*s.HolderIdentity)[strings.LastIndexByte(*s.HolderIdentity, '_')+1:]
		o.ttl = time.Duration(*s.LeaseDurationSeconds) * time.Second
	}
	return o, nil
}

// written returns when an API server stored the latest renewal, whoever has made it, in whole seconds;
// zero if the Lease does not tell. A write that changes renewTime makes its author the field's manager.
func (o object) written() (latest time.Time) {
	for _, entry := range o.lease.ManagedFields {
		renewed := bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"f:renewTime":`))
		if renewed && entry.Time != nil && entry.Time.After(latest) {
			latest = entry.Time.Time
		}
	}
	return latest
}

// Clocks of API servers may differ by margin, or by one TTL if that is less.
const margin = 10 * time.Second

// age returns for how long the Lease has certainly not been renewed when the API server answered.
// The server that stored it may have another clock than the one that answers, and both tell whole
// seconds.
func (o object) age() time.Duration {
	at := o.written()
	if o.date.IsZero() || at.IsZero() {
		return 0
	}
	return max(0, o.date.Sub(at)-time.Second-min(margin, o.ttl))
}

// sameHold reports whether the hold of o was not renewed between o and p.
func (o object) sameHold(p object) bool {
	return o.lease.UID == p.lease.UID && o.owner == p.owner && o.lease.Spec.RenewTime.Equal(p.lease.Spec.RenewTime)
}

func (o object) holder() driver.Participant {
	if o.owner == "" {
		return driver.Participant{}
	}
	metadata, _ := strconv.Unquote(o.lease.Annotations[metadataKey]) // "" if somebody has changed it
	return driver.Participant{ID: o.owner, Metadata: metadata}
}

// copy returns a Lease to be changed and sent. Its UID and resourceVersion have the API server
// refuse it if the Lease has changed, or is gone.
func (o object) copy() *coordinationv1.Lease {
	l := o.lease.DeepCopy()
	l.ManagedFields = nil // the API server's own, which it keeps
	if l.Annotations == nil {
		l.Annotations = map[string]string{}
	}
	if l.Labels == nil {
		l.Labels = map[string]string{}
	}
	l.Labels[managerLabel] = manager
	return l
}

// compare returns an error if stored, the reply to a write, is not what was sent: an admission policy
// or webhook may have changed it, or a proxy has answered. All that a Client decides by is compared.
// The outcome is unknown then.
func compare(sent, stored *coordinationv1.Lease) error {
	was, is := decisive(sent), decisive(stored)
	for i, field := range [...]string{
		"spec.holderIdentity", "spec.leaseDurationSeconds", "spec.renewTime", nameKey, tokenKey, releasedKey,
	} {
		if was[i] != is[i] {
			return fmt.Errorf("the cluster changed %s from %s to %s when it stored the Lease %s: exempt Leases with the label %s=%s from the admission policy or webhook that does so",
				field, cmp.Or(was[i], "none"), cmp.Or(is[i], "none"), sent.Name, managerLabel, manager)
		}
	}
	return nil
}

func decisive(l *coordinationv1.Lease) (fields [6]string) {
	if who := l.Spec.HolderIdentity; who != nil {
		fields[0] = *who
	}
	if seconds := l.Spec.LeaseDurationSeconds; seconds != nil {
		fields[1] = strconv.Itoa(int(*seconds))
	}
	if at := l.Spec.RenewTime; at != nil {
		fields[2] = at.UTC().Format(metav1.RFC3339Micro)
	}
	fields[3], fields[4], fields[5] = l.Annotations[nameKey], l.Annotations[tokenKey], l.Annotations[releasedKey]
	return fields
}

// free returns the Lease of a name that was never held.
func free(namespace, name string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: objectName(name), Namespace: namespace,
		Labels:      map[string]string{managerLabel: manager},
		Annotations: map[string]string{nameKey: name},
	}}
}

// taken returns the Lease with a hold of owner. Its token is larger than each that was granted
// before: that of a grant is not above the revision that the grant has made, in this Lease or in
// one of the name that was deleted, and this Lease is at a later one.
func (o object) taken(owner string, req driver.Request, now time.Time) *coordinationv1.Lease {
	l := o.renewed(req.TTL, now)
	l.Annotations[nameKey] = req.Name
	l.Annotations[tokenKey] = strconv.FormatUint(max(o.token, o.version)+1, 10)
	l.Annotations[metadataKey] = strconv.Quote(req.Metadata) // JSON has no bytes that are not UTF-8
	delete(l.Annotations, releasedKey)
	l.Spec.HolderIdentity = new(readable(req.Metadata) + owner)
	l.Spec.AcquireTime = l.Spec.RenewTime
	transitions := int32(0)
	if t := l.Spec.LeaseTransitions; t != nil {
		transitions = *t
	}
	l.Spec.LeaseTransitions = new((transitions + 1) & math.MaxInt32)
	return l
}

// renewed returns the Lease with a renewTime of now, and always another than before: observers tell
// renewals apart by it, and compare it with no clock.
func (o object) renewed(ttl time.Duration, now time.Time) *coordinationv1.Lease {
	l := o.copy()
	if last := l.Spec.RenewTime; last != nil && !now.Truncate(time.Microsecond).After(last.Time) {
		now = last.Add(time.Microsecond)
	}
	l.Spec.RenewTime = &metav1.MicroTime{Time: now.UTC().Truncate(time.Microsecond)}
	l.Spec.LeaseDurationSeconds = new(int32(ttl / time.Second))
	return l
}

// freed returns the Lease without a hold, and by whom it was released.
func (o object) freed(by string) *coordinationv1.Lease {
	l := o.copy()
	delete(l.Annotations, metadataKey)
	l.Annotations[releasedKey] = by
	l.Spec.HolderIdentity, l.Spec.AcquireTime = nil, nil
	return l
}

// most is how much of a name and of metadata is there for people to read.
const most = 60

// objectName returns the name of the Lease for the lock called name: what can be read of that, and
// a hash of it.
func objectName(name string) string {
	var s strings.Builder
	for _, r := range strings.ToLower(name) {
		switch {
		case s.Len() >= most:
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			s.WriteRune(r)
		case !strings.HasSuffix(s.String(), "-"):
			s.WriteByte('-')
		}
	}
	sum := sha256.Sum256([]byte(name))
	end := strings.ToLower(base32.HexEncoding.EncodeToString(sum[:20]))
	return strings.TrimLeft(strings.TrimRight(s.String(), "-")+"-"+end, "-")
}

// readable returns the beginning of metadata as it stands before the owner in holderIdentity.
func readable(metadata string) string {
	clean := []rune(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return -1
		}
		return r
	}, metadata))
	if len(clean) == 0 {
		return ""
	}
	return string(clean[:min(len(clean), most)]) + "_"
}
