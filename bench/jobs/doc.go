// Package jobs is recipes for job queues: asynq, on Redis, and River, on PostgreSQL. It is not to
// be imported, but to be copied from; docs/recipes-jobs.md in the repository says what is for what,
// and the tests run it with the libraries.
package jobs
