// Package sqllock is the lock protocol of SQL databases on which each statement is a transaction of
// its own, over database/sql. Packages sqlite and mysql have the dialects.
//
// A lock is a row of the locks table: its last token, its last owner, the time at which the hold
// expires, and a flag that it was released. A waiter is a row of the waiters table: its ticket (the
// database's time when it arrived), and the time until which the row counts. No statement changes
// both tables, and none keeps a database lock beyond its own end, so a client that stops between
// two statements blocks nobody. A statement that the database aborts to resolve a deadlock is
// retried.
//
//	look     reads the lock's row, and whether a waiter with an earlier ticket exists.
//	take     compare-and-swap on the token: takes the lock if its token is still the one read by
//	         look (or left by this Client's own last release), nobody holds it, and no earlier
//	         waiter exists. It sets the next token.
//	wait     writes the waiter's row, or extends the time until which it counts.
//	extend   moves the expiry of an unexpired hold of this owner.
//	release  ends the hold. Idempotent: it succeeds if this owner has released the hold already.
//	pass     increments the token if it is still the one compared by an unanswered take, so that
//	         this take can no longer succeed.
//	leave    deletes the waiter's row.
//
// Invariants. (1) At most one owner a name: take alone grants, and changes one row in one step.
// (2) Tokens of a name increase strictly: each take raises the token that it compares. (3) Waiters
// are served in the order of their tickets as far as look and take see the waiters table. If rows
// of that table are lost, order is lost with them; exclusion is not.
//
// What may go wrong, step by step:
//
//   - Lost reply. The outcome of a take is unknown. The next Ask looks: if the row has our owner,
//     the hold is ours, and an extend confirms it; otherwise we take again with the token just
//     read. All other statements are idempotent.
//   - The client stops here. After a take, the hold expires after its TTL. After a wait, the row
//     counts for another 5 s at most (MarkFor). After a leave, the hold, or nothing.
//   - A request arrives after Release was answered. A take fails to match the token: that was used
//     or passed. The row that a wait writes expires at a time that was fixed when it was sent. An
//     extend or a release finds the hold released. Release sends pass before release, so that a
//     take that arrives between the two is released, too.
//   - The database restarts. Committed rows are there. A database that has lost rows grants anew,
//     with tokens from the wall clock; see the conditions of the dialect's guarantees.
//   - Two goroutines share a connection. They do not: each statement has a connection to itself. A
//     connection that others have left in a transaction is closed: see Dialect.Check.
//   - The commit fails after the statement has returned its row. The try's result is discarded.
//   - The clock starts anew, as SQLite's does at boot. A hold that expires more than its TTL from
//     now was written before that, and is shortened to its TTL.
//   - ctx ends now. As for a lost reply: the statement may be committed or not.
package sqllock
