package locker_test

import (
	"context"
	"log/slog"
	"net/url"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
)

// Programs of others are compiled against these. A line that no longer compiles is a breaking change.
var (
	_ locker.Locker = (*locker.Mutex)(nil)

	_ func(context.Context, string, ...locker.Option) (*locker.Client, error) = locker.Open
	_ func(driver.Driver, ...locker.Option) (*locker.Client, error)           = locker.New
	_ func(string, driver.OpenFunc)                                           = driver.Register

	_ func(*locker.Client, string, ...locker.MutexOption) *locker.Mutex = (*locker.Client).Mutex
	_ func(*locker.Client) locker.Guarantees                            = (*locker.Client).Guarantees
	_ func(*locker.Client) error                                        = (*locker.Client).Close

	_ func(*locker.Client, context.Context, string) (locker.State, error) = (*locker.Client).Inspect

	_ func(*locker.Mutex, context.Context) error                              = (*locker.Mutex).TryLock
	_ func(*locker.Mutex) <-chan struct{}                                     = (*locker.Mutex).Lost
	_ func(*locker.Mutex) time.Time                                           = (*locker.Mutex).Deadline
	_ func(*locker.Mutex) string                                              = (*locker.Mutex).Name
	_ func(*locker.Mutex) locker.Guarantees                                   = (*locker.Mutex).Guarantees
	_ func(*locker.Mutex, context.Context, func(context.Context) error) error = (*locker.Mutex).Do
	_ func(*locker.Mutex, context.Context, func(context.Context) error) error = (*locker.Mutex).TryDo
	_ func(*locker.Mutex, context.Context) (*locker.Hold, error)              = (*locker.Mutex).Acquire
	_ func(*locker.Mutex, context.Context) (*locker.Hold, error)              = (*locker.Mutex).TryAcquire

	_ func(*locker.Hold) uint64                 = (*locker.Hold).Token
	_ func(*locker.Hold) <-chan struct{}        = (*locker.Hold).Lost
	_ func(*locker.Hold) time.Time              = (*locker.Hold).Deadline
	_ func(*locker.Hold, context.Context) error = (*locker.Hold).Extend
	_ func(*locker.Hold, context.Context) error = (*locker.Hold).Unlock
	_ func(*locker.Hold) error                  = (*locker.Hold).Err
	_ func(*locker.Hold) error                  = (*locker.Hold).Abandon

	_ func(*locker.Hold, context.Context, time.Duration) (context.Context, context.CancelFunc)  = (*locker.Hold).Context
	_ func(*locker.Mutex, context.Context, time.Duration) (context.Context, context.CancelFunc) = (*locker.Mutex).Context

	_ func(time.Duration) locker.MutexOption                = locker.WithTTL
	_ func() locker.MutexOption                             = locker.WithoutRenewal
	_ func(time.Duration, time.Duration) locker.MutexOption = locker.WithBackoff
	_ func(string) locker.MutexOption                       = locker.WithMetadata
	_ func(string) locker.Option                            = locker.WithPrefix
	_ func(*slog.Logger) locker.Option                      = locker.WithLogger
	_ func(locker.Observer) locker.Option                   = locker.WithObserver
	_ func(uint64) locker.Option                            = locker.WithTokenBase
	_ func(...locker.Guarantee) locker.Option               = locker.Require
	_ func() locker.Option                                  = locker.WithoutRelease

	_ locker.Option = locker.MutexOption(nil)

	_ = locker.Error{Op: "", Name: "", Err: error(nil)}
	_ = driver.URL{Scheme: "", User: (*url.Userinfo)(nil), Hosts: []string(nil), Path: "", Query: url.Values(nil)}
	_ = driver.Request{Name: "", Metadata: "", TTL: time.Duration(0)}
	_ = locker.State{
		Held: false, Holder: locker.Participant{ID: "", Metadata: ""}, Left: time.Duration(0), Token: uint64(0),
		Waiters: []locker.Participant(nil),
	}
	_ = locker.Guarantees{locker.Guarantee(""): locker.Promise{Level: locker.LevelNo, Condition: ""}}
	_ = locker.Observer{
		Start:   func(context.Context, locker.Call) context.Context { return nil },
		Done:    func(context.Context, locker.Call, locker.Result) {},
		Held:    func(context.Context, locker.HoldID) {},
		Ended:   func(context.Context, locker.HoldID, locker.HoldEnd) {},
		Renewed: func(locker.HoldID, locker.Renewal) {},
	}
	_ = locker.Call{Op: "", Name: ""}
	_ = locker.Result{Token: uint64(0), Contended: false, Took: time.Duration(0), Err: error(nil)}
	_ = locker.HoldID{Name: "", Token: uint64(0)}
	_ = locker.HoldEnd{Cause: locker.Cause(""), Held: time.Duration(0), Left: time.Duration(0)}
	_ = locker.Renewal{Lag: time.Duration(0), Err: error(nil)}
	_ = []locker.Cause{locker.CauseUnlocked, locker.CauseAbandoned, locker.CauseExpired, locker.CauseRevoked, locker.CauseClosed}
	_ = []locker.Level{locker.LevelNo, locker.LevelConditional, locker.LevelYes}
	_ = []error{locker.ErrHeld, locker.ErrNotHeld, locker.ErrLost, locker.ErrClosed, locker.ErrUnsupported}

	_ driver.OpenFunc = func(context.Context, *driver.URL) (driver.Driver, error) { return nil, nil }
)
