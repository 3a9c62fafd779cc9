package kubernetes

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// story is what befalls a hold. A Lease is stored at second 0 and, if renewed is above 0, once more
// then. An observer looks at it at first, and again at last. Each time another API server may
// answer, and each has a clock of its own.
type story struct {
	ttl, first, last, renewed time.Duration
	stored, again             time.Duration // how far the clocks of the servers that store are ahead
	answers, answersLast      time.Duration // those of the servers that answer
	client                    time.Duration // that of the observer
}

// rule returns when the observer takes the hold for expired; it knows no more than what it was
// told.
type rule func(s story, told []object, at []time.Time) (expires time.Time)

var zero = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// ours is the code of this package.
func ours(_ story, told []object, at []time.Time) time.Time {
	var known *sighting
	for i, r := range told {
		known = r.seen(known, at[i])
	}
	return known.since.Add(known.ttl)
}

// byObserver is the rule of client-go: its own clock, from when it first saw the renewal.
func byObserver(s story, told []object, at []time.Time) time.Time {
	for i := range told {
		told[i].date = time.Time{}
	}
	return ours(s, told, at)
}

// byServer trusts the clocks of API servers to the second.
func byServer(s story, told []object, at []time.Time) time.Time {
	r := told[len(told)-1]
	return at[len(at)-1].Add(r.ttl + time.Second - r.date.Sub(r.written()))
}

// byWall compares the observer's clock with renewTime, which the holder has written.
func byWall(s story, told []object, _ []time.Time) time.Time {
	r := told[len(told)-1]
	return r.lease.Spec.RenewTime.Add(r.ttl - s.client)
}

// expiry plays a story. It returns when the observer would take the hold over, from when on it may,
// and by when it has to: a TTL after it first saw the Lease so.
func (s story) expiry(r rule) (takes, may, must time.Time) {
	lease := func(at, ahead time.Duration) object {
		return object{owner: "holder", ttl: s.ttl, lease: &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: manager, FieldsV1: renewal, Time: &metav1.Time{Time: zero.Add(at + ahead).Truncate(time.Second)}},
			}},
			Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: zero.Add(at)}},
		}}
	}
	looks := func(at, ahead time.Duration) object {
		o := lease(0, s.stored)
		if s.renewed > 0 && s.renewed <= at {
			o = lease(s.renewed, s.again)
		}
		o.date = zero.Add(at + ahead).Truncate(time.Second)
		return o
	}
	told, at := []object{looks(s.first, s.answers), looks(s.last, s.answersLast)}, []time.Time{zero.Add(s.first), zero.Add(s.last)}
	may, must = zero.Add(s.ttl), at[0].Add(s.ttl)
	if s.renewed > 0 && s.renewed <= s.last {
		may = may.Add(s.renewed)
		if s.renewed > s.first {
			must = at[1].Add(s.ttl)
		}
	} // else its version is another by then, and the take is refused
	return max2(r(s, told, at), at[1]), may, max2(must, at[1])
}

// explore plays all stories with clocks that are up to skew apart. It returns by how much a rule
// has a hold taken over too early, and too late, at worst.
func explore(ttl, skew time.Duration, r rule) (early, late time.Duration) {
	step := ttl/7 + 10*time.Millisecond // not in step with whole seconds
	clocks := []time.Duration{0, skew}
	for first := time.Duration(0); first < 3*ttl; first += step {
		for last := first; last < 3*ttl; last += step {
			for _, renewed := range []time.Duration{0, step, ttl / 3, first, last} {
				for i := range 16 {
					s := story{
						ttl: ttl, first: first, last: last, renewed: renewed, client: clocks[i%2],
						stored: clocks[i%2], again: clocks[i/2%2], answers: clocks[i/4%2], answersLast: clocks[i/8],
					}
					takes, may, must := s.expiry(r)
					early, late = max(early, may.Sub(takes)), max(late, takes.Sub(must))
				}
			}
		}
	}
	return early, late
}

func max2(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Which clock a hold expires by. The observer's own is never wrong, but a program that looks once,
// as TryLock does, never sees a hold expire that has no holder any more: for each that comes it
// lasts a TTL more. The clocks of clients, and those of API servers to the second, are wrong as
// soon as they differ. What this package does is wrong when the API servers' differ by more than
// its margin.
func TestModel_expiry(t *testing.T) {
	for _, ttl := range []time.Duration{2 * time.Second, 12 * time.Second} {
		allowed := min(margin, ttl)
		for _, c := range []struct {
			name string
			rule rule
			skew time.Duration
			safe bool
		}{
			{"client-go's, clocks a minute apart", byObserver, time.Minute, true},
			{"a client's clock, clocks agree", byWall, 0, true},
			{"a client's clock, clocks a second apart", byWall, time.Second, false},
			{"API servers' to the second, clocks agree", byServer, 0, true},
			{"API servers' to the second, clocks two seconds apart", byServer, 2 * time.Second, false},
			{"ours, clocks agree", ours, 0, true},
			{"ours, clocks apart as far as is allowed", ours, allowed, true},
			{"ours, clocks further apart", ours, allowed + 3*time.Second, false},
		} {
			early, late := explore(ttl, c.skew, c.rule)
			t.Logf("TTL %v, %s: at most %v too early, %v late", ttl, c.name, early, late)
			assert.Equal(t, c.safe, early <= 0, "TTL %v, %s: %v too early", ttl, c.name, early)
			if strings.HasPrefix(c.name, "ours") {
				assert.LessOrEqual(t, late, time.Duration(0), "TTL %v, %s: %v too late", ttl, c.name, late)
			}
		}
	}
}
