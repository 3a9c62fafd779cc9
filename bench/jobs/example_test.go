package jobs_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/bench/jobs"
	_ "github.com/go-locker/locker/memory"
)

// While another task of the account runs, on whichever server, this one does not. It comes back.
func ExampleSync_ProcessTask() {
	ctx := context.Background()
	locks, err := locker.Open(ctx, "mem://accounts")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	another := locks.Mutex("sync/42")
	if err := another.Lock(ctx); err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = another.Unlock(context.WithoutCancel(ctx)) }()

	s := &jobs.Sync{Locks: locks}
	err = s.ProcessTask(ctx, asynq.NewTask("sync", []byte("42")))
	fmt.Println(errors.Is(err, locker.ErrHeld))
	fmt.Println("a failure:", jobs.SyncConfig().IsFailure(err))
	// Output:
	// true
	// a failure: false
}
