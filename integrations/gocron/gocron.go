// Package gocron has gocron's schedulers (github.com/go-co-op/gocron/v2) take locks, or have a
// leader, at any backend of locker.
//
// What gocron's interfaces cannot express, and what is done instead:
//
//   - Lock is not told which tick it is for. A lock excludes at one time and does not count runs,
//     so a scheduler whose clock is later than a short job takes finds the lock free, and runs the
//     tick again. Therefore a [Locker] keeps each lock for a minimum, from its grant on. That does
//     not help a scheduler that is stopped before its Lock, and wakes after the minimum. If twice
//     would be wrong, the job has to keep a record of what is done, as examples/cron in the
//     repository does.
//   - A job is not told that its lock is lost, or its term over. The functions of [Locker.Task] and
//     [Elector.Task] are: their context ends. Nor can a run be told the lock that it has. The
//     context of its job leads to it, which gocron gives to both.
//   - Unlock gets the job's context, which has ended when the scheduler shuts down, and gocron
//     drops its error. A Locker releases all the same, and tells the function that NewLocker was
//     given.
//   - The lock's name is the job's name, by default that of its function, which is the same for all
//     functions that Task made. Without [cron.WithName] such a job is refused.
//
// A job of Task takes the fencing token, or the number of the term. No lock can stop a process that
// is paused and wakes after its lock was given to another: what must not be written then has to be
// refused by the resource, which compares the token (package fence).
//
// gocron asks one of the two: with an Elector it asks no Locker.
package gocron
