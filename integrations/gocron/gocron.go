// Package gocron lets gocron's schedulers (github.com/go-co-op/gocron/v2) take locks, or elect a
// leader, at any backend of locker.
//
// What gocron's interfaces cannot express, and what is done instead:
//
//   - Lock is not told which tick it is for. A lock excludes others while it is held; it does not
//     count runs. If another scheduler's clock is behind by more than the job takes, that scheduler
//     finds the lock free, and runs the tick again. Therefore a [Locker] keeps each lock for a
//     minimum, from its grant on. This does not help if a scheduler is stopped before its Lock, and
//     wakes after the minimum. If a second run would be wrong, the job has to keep a record of what
//     is done, as examples/cron in the repository does.
//   - gocron cannot tell a job that its lock is lost, or its term over. The functions of
//     [Locker.Task] and [Elector.Task] learn it: their context ends. Nor can gocron tell a run
//     which lock it has. A Locker finds the lock of a run by the context that gocron passes to both
//     Lock and the run.
//   - Unlock gets the job's context, which has ended when the scheduler shuts down, and gocron
//     drops the error of Unlock. A Locker releases all the same, and passes the error to the
//     function that [NewLocker] was given.
//   - The lock's name is the job's name. By default this is the name of the job's function. All
//     functions that Task makes have the same name. Without [cron.WithName] (cron is gocron/v2 in
//     these texts), such a job is refused.
//
// A job of Task takes the fencing token, or the number of the term. No lock can stop a process that
// is paused, and wakes after its lock was given to another. The resource has to refuse its writes,
// by comparing the token (package fence).
//
// gocron asks either an Elector or a Locker: if it has an Elector, it asks no Locker.
package gocron
