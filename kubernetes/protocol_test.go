package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/noanswer"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testwait"
)

var (
	eventually = testwait.Patience(20 * time.Second).Until
	await      = testwait.Patience(20 * time.Second).Result
	async      = testwait.Go
)

var request = driver.Request{Name: "locker:orders/42", TTL: 20 * time.Second, Metadata: "app@host"}

func take(t *testing.T, d *backend) driver.Claim {
	t.Helper()
	l, err := claims.Take(t.Context(), d, request)
	require.NoError(t, err)
	return l
}

func TestNames_areThoseOfKubernetes(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range []string{"a", "A", "-", "locker:orders/42", "é\x00", "..", strings.Repeat("x", 5000), strings.Repeat("/", 70) + "a"} {
		o := objectName(name)
		assert.Empty(t, validation.IsDNS1123Subdomain(o), "%q", o)
		assert.False(t, seen[o])
		seen[o] = true
	}
	assert.True(t, strings.HasPrefix(objectName("locker:orders/42"), "locker-orders-42-"))
}

// What docs/backends/kubernetes.md says that a lock costs.
func TestCounts(t *testing.T) {
	f := newFake(t)
	d, other := f.driver(t), f.driver(t)
	var c driver.Claim
	release := func() { require.NoError(t, c.Release(t.Context())) }
	assert.Equal(t, map[string]int{"GET": 1, "POST": 1, "PUT": 1}, f.sent(func() { c = take(t, d) }), "a new name")
	assert.Equal(t, map[string]int{"PUT": 1}, f.sent(func() { require.NoError(t, c.Extend(t.Context(), request.TTL)) }))
	assert.Equal(t, map[string]int{"GET": 1}, f.sent(func() {
		_, err := claims.Take(t.Context(), other, request)
		held, ok := errors.AsType[*driver.HeldError](err)
		require.True(t, ok)
		assert.Equal(t, "app@host", held.Holder.Metadata)
	}))
	assert.Equal(t, map[string]int{"PUT": 1}, f.sent(release))
	assert.Equal(t, map[string]int{"PUT": 1}, f.sent(func() { c = take(t, d) }), "a name that this Driver has released")
	release()
	assert.Equal(t, map[string]int{"GET": 1, "PUT": 1}, f.sent(func() { c = take(t, f.driver(t)) }), "a name that another has used")
	release()
	assert.Equal(t, map[string]int{"GET": 1, "PUT": 2}, f.sent(func() { c = take(t, d) }), "and it does not know that")
	release()
	assert.Empty(t, f.sent(func() { require.NoError(t, d.Claim(request).Release(t.Context())) }))
}

// The API server has applied a take, and its answer was lost.
func TestAsk_afterATakeWhoseReplyWasLost(t *testing.T) {
	f := newFake(t)
	d := f.driver(t)
	c := d.Claim(request)
	f.lose = func(method string, applied bool) bool { return applied && method == http.MethodPut }
	_, err := c.Ask(t.Context())
	require.Error(t, err)
	require.NotErrorIs(t, err, driver.ErrHeld)
	f.set(func() { f.lose = nil })
	_, err = c.Ask(t.Context())
	require.NoError(t, err)
	token := c.Token()
	assert.Positive(t, token)
	_, err = c.Ask(t.Context())
	require.NoError(t, err, "asked once more, it has the same")
	assert.Equal(t, token, c.Token())
	require.NoError(t, c.Release(t.Context()))
	require.NoError(t, c.Release(t.Context()), "again, because the reply was lost")
	assert.Greater(t, take(t, d).Token(), token)
	require.ErrorIs(t, c.Release(t.Context()), driver.ErrLost, "another has it now, and it cannot know")
}

// A take, or an extension, that arrives after its release finds another version.
func TestRelease_beforeARequestArrives(t *testing.T) {
	f := newFake(t)
	d := f.driver(t)
	require.NoError(t, take(t, d).Release(t.Context()))
	c := d.Claim(request).(*claim)
	f.lose = func(method string, applied bool) bool { return !applied && method == http.MethodPut }
	_, err := c.Ask(t.Context())
	require.Error(t, err)
	f.set(func() { f.lose = nil })
	f.denies(http.StatusForbidden, metav1.StatusReasonForbidden, http.MethodPut)
	_, err = c.Ask(t.Context())
	require.True(t, apierrors.IsForbidden(err), "this one has taken nothing: %v", err)
	f.set(func() { f.answer = nil })
	s, _ := d.views.recall(request.Name, false)
	late := s.taken(c.owner, request, time.Now()) // what was lost
	require.NoError(t, c.Release(t.Context()))
	_, err = d.api.lease(t.Context(), http.MethodPut, late.Name, late)
	require.True(t, apierrors.IsConflict(err), "%v", err)

	c = take(t, d).(*claim)
	late = c.latest().renewed(request.TTL, time.Unix(0, 0))
	assert.True(t, late.Spec.RenewTime.After(c.latest().lease.Spec.RenewTime.Time), "another, though the clock was set back")
	require.NoError(t, c.Release(t.Context()))
	_, err = d.api.lease(t.Context(), http.MethodPut, late.Name, late)
	require.True(t, apierrors.IsConflict(err), "%v", err)
	require.ErrorIs(t, c.Extend(t.Context(), request.TTL), driver.ErrLost)
}

// The API server has stored a take, but its reply does not say so: it timed out, or the network has
// delivered the take twice, and the second copy finds that the Lease has changed.
func TestRelease_ofATakeThatWasStored(t *testing.T) {
	for status, reason := range map[int]metav1.StatusReason{
		http.StatusGatewayTimeout: metav1.StatusReasonTimeout, http.StatusConflict: metav1.StatusReasonConflict,
	} {
		f := newFake(t)
		d := f.driver(t)
		require.NoError(t, take(t, d).Release(t.Context()))
		c := d.Claim(request)
		f.late, f.why = status, reason
		_, err := c.Ask(t.Context())
		require.Equal(t, reason, apierrors.ReasonForError(err), "%v", err)
		f.late = 0
		require.NoError(t, c.Release(t.Context()))
		take(t, f.driver(t))
	}
}

// What refuses each write as outdated, though nobody has changed the Lease, is no contender but a
// webhook or a proxy. Its text is the error, and it is not asked again and again.
func TestAsk_refusedThoughNothingHasChanged(t *testing.T) {
	for method, reasons := range map[string][]metav1.StatusReason{
		http.MethodPut:  {metav1.StatusReasonConflict, metav1.StatusReasonNotFound},
		http.MethodPost: {metav1.StatusReasonConflict, metav1.StatusReasonAlreadyExists, metav1.StatusReasonNotFound},
	} {
		for _, reason := range reasons {
			f := newFake(t)
			held := take(t, f.driver(t))
			d := f.driver(t)
			fresh := request
			fresh.Name = "fresh"
			if method == http.MethodPut {
				l, err := claims.Take(t.Context(), d, fresh)
				require.NoError(t, err)
				require.NoError(t, l.Release(t.Context()))
			}
			f.denies(http.StatusConflict, reason, method)
			fails := func(most int, do func(ctx context.Context) error) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				all := 0
				for _, n := range f.sent(func() { require.ErrorContains(t, do(ctx), string(reason), method) }) {
					all += n
				}
				assert.LessOrEqual(t, all, most, "%s %s", method, reason)
			}
			c := d.Claim(fresh)
			fails(6, func(ctx context.Context) error { _, err := c.Ask(ctx); return err })
			if method == http.MethodPut {
				fails(3, c.Release)
				fails(2, func(ctx context.Context) error { return held.Extend(ctx, request.TTL) })
				fails(2, held.Release)
				fails(3, func(ctx context.Context) error { return d.ForceRelease(ctx, request.Name, driver.State{}) })
			}
		}
	}
}

// A redirect is no answer. net/http would turn a PUT into a GET, whose 200 looks like a grant, and
// client-go would send its token to the other host.
func TestAsk_redirected(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		f, elsewhere := newFake(t), newFake(t)
		d := f.driver(t)
		held := take(t, d)
		require.NoError(t, take(t, elsewhere.driver(t)).Release(t.Context()))
		redirect := func(to *fake, methods ...string) {
			f.answers(func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, to.URL+r.URL.Path+"?secret", status)
			}, methods...)
		}
		refused := func(err error, by *fake) {
			require.ErrorContains(t, err, by.URL+": locker follows no redirect")
			require.NotErrorIs(t, err, driver.ErrHeld)
			require.NotErrorIs(t, err, driver.ErrLost)
			assert.NotContains(t, err.Error(), "secret")
		}
		redirect(f, http.MethodPut, http.MethodPost)
		assert.Equal(t, map[string]int{"PUT": 1}, f.sent(func() { refused(held.Extend(t.Context(), request.TTL), f) }))
		assert.Equal(t, map[string]int{"GET": 1, "POST": 1}, f.sent(func() {
			_, err := f.driver(t).Claim(driver.Request{Name: "without a Lease", TTL: request.TTL}).Ask(t.Context())
			refused(err, f)
		}))
		redirect(elsewhere, http.MethodGet)
		assert.Empty(t, elsewhere.sent(func() {
			_, err := f.driver(t).Claim(request).Ask(t.Context())
			refused(err, elsewhere)
		}))
	}
}

// What an admission policy changes is no grant, and no renewal. The error tells what it changed, and
// a release frees what was stored.
func TestAsk_anAdmissionPolicyThatChangesALease(t *testing.T) {
	for want, admit := range map[string]func(l *coordinationv1.Lease){
		"spec.leaseDurationSeconds from 20 to 5": func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = new(int32(5)) },
		"spec.renewTime from ":                   func(l *coordinationv1.Lease) { l.Spec.RenewTime.Time = l.Spec.RenewTime.Add(time.Hour) },
		"spec.holderIdentity from app@host_":     func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new("system") },
		"go-locker.github.io/token from ":        func(l *coordinationv1.Lease) { delete(l.Annotations, tokenKey) },
		"go-locker.github.io/name from ":         func(l *coordinationv1.Lease) { l.Annotations[nameKey] = "x" },
	} {
		f := newFake(t)
		policy := func(admit func(l *coordinationv1.Lease)) { f.set(func() { f.admit = admit }) }
		c := take(t, f.driver(t))
		policy(admit)
		before := c.Validity()
		err := c.Extend(t.Context(), request.TTL)
		require.ErrorContains(t, err, "the cluster changed "+want)
		require.NotErrorIs(t, err, driver.ErrLost)
		assert.LessOrEqual(t, c.Validity(), before, want)

		policy(nil)
		other := request
		other.Name = "other"
		l, err := claims.Take(t.Context(), f.driver(t), other)
		require.NoError(t, err)
		require.NoError(t, l.Release(t.Context()))
		c = f.driver(t).Claim(other)
		policy(admit)
		_, err = c.Ask(t.Context())
		require.ErrorContains(t, err, "the cluster changed "+want)
		require.NotErrorIs(t, err, driver.ErrHeld)
		policy(nil)
		require.NoError(t, c.Release(t.Context()))
		if !strings.Contains(want, "holderIdentity") { // else nobody knows whose it is
			_, err = claims.Take(t.Context(), f.driver(t), other)
			require.NoError(t, err, want)
		}
	}
}

// A proxy that answers with another Lease.
func TestAsk_theAnswerIsAnothersLease(t *testing.T) {
	f := newFake(t)
	other := take(t, f.driver(t)).(*claim).latest()
	f.answers(func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(other.lease) }, http.MethodGet)
	_, err := f.driver(t).Claim(driver.Request{Name: "x", TTL: request.TTL}).Ask(t.Context())
	require.ErrorContains(t, err, other.lease.Name)
	require.NotErrorIs(t, err, driver.ErrHeld)
}

// A Lease that was copied from another cluster has a token above all versions of this one.
func TestToken_isAboveTheLast(t *testing.T) {
	f := newFake(t)
	d := f.driver(t)
	l := free("default", request.Name)
	l.Annotations[tokenKey] = "1000000"
	_, err := d.api.lease(t.Context(), http.MethodPost, l.Name, l)
	require.NoError(t, err)
	c := take(t, d)
	assert.EqualValues(t, 1000001, c.Token())
	require.NoError(t, c.Release(t.Context()))
	f.ahead.Store(int64(idleHeld + time.Hour))
	require.NoError(t, d.sweep(t.Context()))
	assert.EqualValues(t, 1000002, take(t, f.driver(t)).Token(), "a sweep keeps it: a new Lease would begin at this cluster's revision")
}

// A holder that stood still for a TTL does not go on, even if nobody has taken the lock over.
func TestExtend_ofAHoldThatHasExpired(t *testing.T) {
	f := newFake(t)
	c, err := claims.Take(t.Context(), f.driver(t), driver.Request{Name: "x", TTL: time.Second})
	require.NoError(t, err)
	eventually(t, "it expires", func() bool { return c.Validity() <= 0 })
	assert.Empty(t, f.sent(func() { require.ErrorIs(t, c.Extend(t.Context(), time.Second), driver.ErrLost) }))
}

// The Lease is changed by others, and deleted.
func TestExtend_besideOthers(t *testing.T) {
	f := newFake(t)
	d := f.driver(t)
	c := take(t, d)
	edit := func(remove bool) {
		r, err := d.api.lease(t.Context(), http.MethodGet, objectName(request.Name), nil)
		require.NoError(t, err)
		l := r.copy()
		if l.Labels["team"] = "a"; remove {
			require.NoError(t, d.api.remove(t.Context(), r.lease))
			return
		}
		_, err = d.api.lease(t.Context(), http.MethodPut, l.Name, l)
		require.NoError(t, err)
	}
	edit(false)
	require.NoError(t, c.Extend(t.Context(), request.TTL))
	edit(false)
	require.NoError(t, c.Release(t.Context()))

	c = take(t, d)
	token := c.Token()
	f.refuse = http.StatusNotFound
	err := c.Extend(t.Context(), request.TTL)
	require.ErrorContains(t, err, "404")
	require.NotErrorIs(t, err, driver.ErrLost, "no API server says so, but a proxy")
	f.refuse = 0
	edit(true)
	require.ErrorIs(t, c.Extend(t.Context(), request.TTL), driver.ErrLost)
	require.ErrorIs(t, c.Release(t.Context()), driver.ErrLost)
	assert.Greater(t, take(t, d).Token(), token)
}

// A program that looks once finds a hold expired whose holder has died, by the API server's clock.
// That is wrong when the clock has jumped by more than the margin.
func TestAsk_expiryByTheAPIServersClock(t *testing.T) {
	f := newFake(t)
	holder := take(t, f.driver(t))
	f.ahead.Store(int64(request.TTL - time.Second + margin))
	_, err := claims.Take(t.Context(), f.driver(t), request)
	require.ErrorIs(t, err, driver.ErrHeld, "within the margin it is not believed")
	f.ahead.Store(int64(request.TTL + 3*time.Second + margin))
	next := take(t, f.driver(t))
	assert.Greater(t, next.Token(), holder.Token())
	require.ErrorIs(t, holder.Extend(t.Context(), request.TTL), driver.ErrLost)
}

// A renewal that another field manager has made counts. A label that it has set does not.
func TestAsk_expiryOfAHoldThatAnotherManagerRenewed(t *testing.T) {
	f := newFake(t)
	take(t, f.driver(t))
	f.ahead.Store(int64(time.Hour))
	f.mu.Lock()
	l := f.leases[objectName(request.Name)].DeepCopy()
	l.Spec.RenewTime.Time = l.Spec.RenewTime.Add(time.Hour)
	ours := l.ManagedFields[0]
	l = f.store("MODIFIED", l)
	ours.FieldsV1 = metav1.NewFieldsV1(`{"f:spec":{"f:holderIdentity":{}}}`)
	theirs := l.ManagedFields[0]
	theirs.Manager = "kubectl"
	l.ManagedFields = []metav1.ManagedFieldsEntry{ours, theirs}
	f.mu.Unlock()
	_, err := claims.Take(t.Context(), f.driver(t), request)
	require.ErrorIs(t, err, driver.ErrHeld)
	f.ahead.Store(int64(2 * time.Hour))
	f.mu.Lock()
	theirs.FieldsV1 = metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:team":{}}}}`)
	theirs.Time = &metav1.Time{Time: f.now()}
	l.ManagedFields = append(l.ManagedFields, theirs)
	f.mu.Unlock()
	take(t, f.driver(t))
}

// The answer 429 is an error when the pause that it asks for is over. A Lock rides that out, and a
// server that starts or has no store.
func TestAsk_tooManyRequests(t *testing.T) {
	f := newFake(t)
	d := f.driver(t)
	f.refuse = http.StatusTooManyRequests
	c, began := d.Claim(request), time.Now()
	_, err := c.Ask(t.Context())
	require.True(t, apierrors.IsTooManyRequests(err), "%v", err)
	assert.GreaterOrEqual(t, time.Since(began), time.Second)
	require.True(t, noanswer.Outage(err), "%v", err)
	assert.Empty(t, f.sent(func() { require.NoError(t, c.Release(t.Context())) }), "nothing was taken")
	f.refuses(http.StatusServiceUnavailable)
	_, err = c.Ask(t.Context())
	require.True(t, noanswer.Outage(err), "%v", err)
}

// transport is one that heeds no context, such as that of a credential plugin that hangs.
type transport func(r *http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// Ask returns when its context ends, and Close returns, though the transport does not.
func TestAsk_whileACredentialPluginHangs(t *testing.T) {
	f := newFake(t)
	take(t, f.driver(t))
	var hangs atomic.Bool
	plugin, done := make(chan struct{}), make(chan struct{})
	client := f.client(t).(*rest.RESTClient)
	by := client.Client.Transport
	client.Client.Transport = transport(func(r *http.Request) (*http.Response, error) {
		if hangs.Load() {
			<-plugin
			defer close(done)
		}
		return by.RoundTrip(r.WithContext(context.WithoutCancel(r.Context())))
	})
	d, err := NewDriver(client, "default")
	require.NoError(t, err)
	wait(t, d.(*backend), request)
	eventually(t, "it watches", func() bool { return f.count("WATCH") == 1 })
	hangs.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	other := request
	other.Name = "other"
	asked := async(func() error { _, err := d.Claim(other).Ask(ctx); return err })
	require.ErrorIs(t, await(t, asked), context.DeadlineExceeded)
	require.NoError(t, await(t, async(d.Close)), "its watch heeds no context either")
	close(plugin)
	<-done
}

func TestSweep_deletesWhatNobodyUses(t *testing.T) {
	f := newFake(t)
	d := f.driver(t)
	names := func() (all []string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, l := range f.leases {
			all = append(all, l.Annotations[nameKey])
		}
		return all
	}
	taken := func(name string) driver.Claim {
		l, err := claims.Take(t.Context(), d, driver.Request{Name: name, TTL: time.Second})
		require.NoError(t, err)
		return l
	}
	foreign := free("default", "foreign")
	foreign.Name = "foreign" // it has our label, and is no lock
	_, err := d.api.lease(t.Context(), http.MethodPost, foreign.Name, foreign)
	require.NoError(t, err)
	never := free("default", "never held")
	_, err = d.api.lease(t.Context(), http.MethodPost, never.Name, never)
	require.NoError(t, err)
	require.NoError(t, taken("released").Release(t.Context()))
	taken("died")
	f.ahead.Store(int64(idleFree + time.Minute))
	taken("held")
	require.NoError(t, d.sweep(t.Context()))
	assert.ElementsMatch(t, []string{"foreign", "died", "held"}, names())
	f.ahead.Store(int64(idleHeld + time.Hour))
	require.NoError(t, d.sweep(t.Context()))
	assert.Equal(t, []string{"foreign"}, names())
	l := taken("released")
	require.NoError(t, l.Extend(t.Context(), time.Second))
}

// A Lease that is taken after a sweep has read it is not deleted.
func TestSweep_ofALeaseThatIsTakenMeanwhile(t *testing.T) {
	f := newFake(t)
	d := f.driver(t)
	require.NoError(t, take(t, d).Release(t.Context()))
	f.ahead.Store(int64(idleFree + time.Minute))
	f.lose = func(method string, applied bool) bool {
		if method == http.MethodDelete && !applied {
			f.store("MODIFIED", f.leases[objectName(request.Name)].DeepCopy())
		}
		return false
	}
	asked := f.sent(func() { require.NoError(t, d.sweep(t.Context())) })
	assert.Equal(t, 1, asked[http.MethodDelete])
	assert.Contains(t, f.leases, objectName(request.Name))
}

func TestNew_refusesWhatMakesNoRequests(t *testing.T) {
	_, err := New(nil, "default")
	require.ErrorContains(t, err, "no *rest.RESTClient")
	_, err = NewDriver(newFake(t).client(t), "")
	require.ErrorContains(t, err, "no namespace")
}
