// Package clientgo lets client-go's leader election (k8s.io/client-go/tools/leaderelection), and so
// controller-runtime, use a lock of any backend in place of a Lease.
//
//	lock, err := clientgo.New(client, "my-controller", hostname+"_"+uuid)
//	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
//		Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
//		ReleaseOnCancel: true, Callbacks: callbacks,
//	})
//
// For controller-runtime, set LeaderElectionResourceLockInterface of manager.Options to lock.
//
// What is different from a Lease:
//
//   - The lock's TTL is the LeaseDuration of the leader. The backend decides when a term is over,
//     not each candidate by its own clock: a candidate that has just started need not wait for a
//     LeaseDuration to find out that nobody leads.
//   - A leader whose hold was lost does not lead again in the same run: another may have led in
//     between, and client-go would go on without a call of its callbacks.
//   - A release ends the leader's own hold alone. The release of a Lease also ends the term of
//     another leader that has taken over meanwhile.
//   - There is a fencing token, and a hold whose context ends before another can lead: see
//     [Lock.Hold]. With ReleaseOnCancel client-go releases before it tells OnStoppedLeading.
//
// Candidates ask every RetryPeriod, as with a Lease.
package clientgo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/go-locker/locker"
)

// Lock implements [resourcelock.Interface]. Each candidate has one of its own.
type Lock struct {
	client         *locker.Client
	name, identity string

	mu      sync.Mutex
	hold    *locker.Hold // nil: none
	seconds int          // its TTL
	leads   bool         // by the election
}

var _ resourcelock.Interface = (*Lock)(nil)

// New makes a Lock of a name. identity tells candidates apart; it is the metadata of the hold. The
// backend of client has to tell who holds a lock, as all backends of this repository do.
func New(client *locker.Client, name, identity string) (*Lock, error) {
	switch {
	case client == nil:
		return nil, errors.New("clientgo: nil Client")
	case name == "", identity == "":
		return nil, errors.New("clientgo: the name and the identity must not be empty")
	}
	return &Lock{client: client, name: name, identity: identity}, nil
}

// Hold returns the hold of the leader, and nil if this candidate does not lead. Its Token is for
// what the leader writes. Its Context is for the leader's work: it ends when the hold is lost, and
// right before client-go releases it. Lost does not tell of a release, such as the one after
// RenewDeadline.
func (l *Lock) Hold() *locker.Hold {
	hold, _ := l.term()
	return hold
}

// term returns the hold, if it lasts. It is over if the election has not ended yet, and the hold
// has.
func (l *Lock) term() (hold *locker.Hold, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hold != nil && l.hold.Err() != nil {
		l.hold = nil
	}
	return l.hold, l.leads && l.hold == nil
}

// Get returns who leads. It makes no request if this candidate does.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r, err := l.record(ctx)
	if err != nil {
		return nil, nil, err
	}
	raw, err := json.Marshal(r)
	return r, raw, err
}

func (l *Lock) record(ctx context.Context) (*resourcelock.LeaderElectionRecord, error) {
	hold, over := l.term()
	// A candidate looks by its own clock whether a record is old. The backend has done that, so
	// that each record is a new one.
	r := &resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1, RenewTime: metav1.Now()}
	if hold != nil {
		r.HolderIdentity, r.LeaderTransitions, r.LeaseDurationSeconds = l.identity, int(hold.Token()), l.seconds
		return r, nil
	}
	state, err := l.client.Inspect(ctx, l.name)
	switch {
	case err != nil:
		return nil, err
	case !state.Held && !over:
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "locks"}, l.name)
	case !state.Held: // this run does not lead again
		return r, nil
	}
	r.LeaderTransitions = int(state.Token)
	for _, known := range []string{state.Holder.Metadata, state.Holder.ID, "unknown"} {
		if r.HolderIdentity = known; known != "" {
			break
		}
	}
	if r.HolderIdentity == l.identity {
		r.HolderIdentity += " of another run"
	}
	return r, nil
}

// Create takes the lock.
func (l *Lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, r)
}

// Update takes the lock, extends the hold, or releases it if the record has no holder.
func (l *Lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	hold, over := l.term()
	switch {
	case r.HolderIdentity == "":
		return l.release(ctx, hold)
	case r.HolderIdentity != l.identity:
		return fmt.Errorf("clientgo: a record of %q, and this candidate is %q", r.HolderIdentity, l.identity)
	case over:
		return fmt.Errorf("clientgo: the term is over: %w", locker.ErrLost)
	case hold == nil:
		return l.take(ctx, r.LeaseDurationSeconds)
	default:
		return hold.Extend(ctx)
	}
}

func (l *Lock) take(ctx context.Context, seconds int) error {
	if seconds < 1 {
		return errors.New("clientgo: a LeaseDuration is a second or more")
	}
	m := l.client.Mutex(l.name, locker.WithTTL(time.Duration(seconds)*time.Second), locker.WithMetadata(l.identity), locker.WithoutRenewal())
	hold, err := m.TryAcquire(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hold, l.seconds = hold, seconds
	return nil
}

// release ends the hold, if there is one.
func (l *Lock) release(ctx context.Context, hold *locker.Hold) error {
	if hold == nil {
		return nil
	}
	if err := hold.Unlock(ctx); !errors.Is(err, locker.ErrLost) { // which has ended, too
		return err
	}
	return nil
}

// RecordEvent is called by client-go when a run of the election begins to lead, and when the run
// has ended. After its end, the next run may take the lock.
func (l *Lock) RecordEvent(event string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch event {
	case "became leader":
		l.leads = true
	case "stopped leading":
		l.leads = false
	}
}

// Identity returns the identity of this candidate.
func (l *Lock) Identity() string { return l.identity }

// Describe returns the name of the lock.
func (l *Lock) Describe() string { return "locker/" + l.name }
