// Package kubernetes keeps locks in a Kubernetes cluster: a lock is a Lease
// (coordination.k8s.io/v1) of a namespace. It registers kubernetes://.
//
//	client, err := locker.Open(ctx, "kubernetes://?namespace=jobs")
//
// It finds the cluster as kubectl does: by a kubeconfig, or by the service account of its pod.
// [New] takes the client of a clientset of your own instead.
//
// Which rights a user needs, what a client of your own should set, what a lock costs and leaves,
// and how it compares with client-go's leader election:
// https://github.com/go-locker/locker/blob/main/docs/backends/kubernetes.md.
//
// # The URL
//
//	kubernetes://[host[:port]][?kubeconfig=file&context=name&namespace=name]
//
// A host is that of the API server, in place of the one that the kubeconfig or the pod names.
// Without the parameters, the kubeconfig, its context and namespace are those of kubectl, and in a
// pod those of its service account.
//
// # What is stored
//
// The Lease's own name is made from the lock's name, so that people can read it. It ends with a
// hash. What people look for is in the Lease's standard fields:
//
//	spec.holderIdentity         the beginning of the metadata, an underscore, and the owner: 32
//	                            characters, new for each Lock or TryLock. Absent: the lock is free
//	spec.leaseDurationSeconds   the TTL of the hold, in whole seconds
//	spec.acquireTime, renewTime by the holder's clock, for people; nobody compares them with a clock
//	spec.leaseTransitions       grants
//
// The rest is in annotations under go-locker.github.io/: name, token, metadata, and released-by,
// which is the owner that has released it. The label app.kubernetes.io/managed-by is locker.
//
// # Steps
//
// Each step is one update (PUT) of the Lease as it was read, with its uid and resourceVersion: an
// API server refuses it with 409 if anything has changed since, or the Lease was deleted. The uid
// is needed: without it, an update would create a deleted Lease again.
//
//	take     if it is free or expired: the owner, the TTL, the next token
//	extend   if the owner is ours: another renewTime
//	release  if the owner is ours: no owner, and released-by
//
// A name that has no Lease gets a free one first (POST), and is taken by the next request. So a
// POST that arrives late grants nothing. If somebody else has changed the Lease, such as a label,
// the hold is not lost: after a 409 the Lease is read again, and the step is made again if the
// owner is still ours. If the Lease has not changed, the 409 is that of a webhook, and the error.
//
// The token is one more than the last token, or one more than the resourceVersion that was read, if
// that is larger. A resourceVersion is a revision of the cluster's store (etcd), and each grant
// raises the revision by at least one. So a token is never above the revision at which it was
// granted. A Lease that is deleted and made again has a later revision: tokens go on rising.
//
// # Expiry
//
// Nothing in the cluster ends a hold. A contender takes the lock over, by the update above, when
// the hold is as old as its TTL. Its age is the longer of two times:
//
//   - By the observer's own clock, the time since it first saw the Lease in this state. This is
//     client-go's rule. It needs no other clock. But a program that looks once, as TryLock does,
//     never sees a hold expire that way, and a new waiter waits for a whole TTL.
//   - By the API servers' clocks: the Date of the answer, minus the time at which an API server
//     stored the latest renewal (in managedFields, of the manager of renewTime), minus a second for
//     rounding, minus a margin. The margin is 10 s, or one TTL if that is shorter.
//
// While the clocks of the API servers agree within the margin, nobody takes a hold over before its
// TTL has passed since its last renewal. No client's wall clock is used. model_test.go explores
// both rules, and others.
//
// # Waiting
//
// All waiters for a name in a Client share one watch of its Lease. A release wakes one waiter of
// each Client, after a random delay of up to 80 ms at first, and of 10 to 500 ms when the Client
// knows how many contend. The first that asks has the lock; most others see that in the watch, and
// do not ask. So there is no order. A waiter makes no request while the holder renews. If the watch
// has told nothing for half a TTL, the waiter looks.
//
// # When something fails
//
//	a reply is lost         the next attempt reads the Lease, finds that the owner is its own, and
//	                        renews the hold. If there is no next attempt, the release changes the
//	                        Lease, so that a take that is still under way finds another
//	                        resourceVersion. A release that is sent again finds its owner in
//	                        released-by, and succeeds
//	a request arrives late  it is refused, because the Lease has changed. An extend whose holder has
//	                        died may prolong a hold that had expired, for one TTL, if nobody has taken
//	                        it
//	429, Retry-After        the request fails after the pause, and has changed nothing
//	5xx, a time-out         the outcome is unknown
//	a redirect, or a reply  the outcome is unknown: no redirect is followed, and the reply to a write is
//	with other values       compared with what was sent
//	a process is stopped    its hold is over by its own clock when it wakes, and its requests are
//	                        refused if another has the lock
//	an API server restarts  requests fail meanwhile; holds go on, and watches begin again
//	the Lease is deleted    the hold is lost, at the next renewal at the latest
//	etcd is restored        tokens may repeat, and holds since the backup are forgotten:
//	                        see Guarantees
package kubernetes
