// Package sqllock is the protocol of locks in a database of SQL whose statements are transactions
// of their own, over database/sql. Packages sqlite and mysql have the databases.
//
// A lock is a row of the table of locks: its last token, its last owner, until when that one holds
// it, and whether it was released. Who waits has a row in the table of waiters: its ticket, which
// is the database's time when it came, and until when it counts. No statement changes both tables,
// and none has a lock of the database beyond its own end: a client that is stopped between two
// statements keeps nobody from anything. Where two wait for each other, the database ends one, and
// it is tried again.
//
//	look     reads the lock's row, and whether somebody waits who came earlier.
//	take     takes the lock: if its token is the one that look has read, or that the Client has had
//	         itself, nobody holds it, and nobody waits who came earlier. It sets the next token.
//	wait     writes the waiter's row, or the next time until which it counts.
//	extend   moves the end of a hold that has not ended and is the owner's.
//	release  ends it. Of a hold that the owner has released already it succeeds, too.
//	pass     adds one to the token, if it is the one that a take was sent with.
//	leave    deletes the waiter's row.
//
// Exclusion rests on take alone, which changes one row in one step. The order of waiters rests on
// what look and take see of the other table, and is lost where that is lost; exclusion is not.
//
// What may go wrong, step by step:
//
//   - The reply is lost. A take is in doubt then. The next Ask looks: if the lock is the owner's it
//     is granted, by an extend. Else it takes again with the token that it sees. The other
//     statements bring the same when they are sent again.
//   - The client stops right here. After a take: the hold ends by its TTL. After a wait: the row
//     counts for another 5 s, or the TTL if that is shorter. After a leave: the hold, or nothing.
//   - The request arrives late, after Release was answered. A take finds another token: it was
//     taken with, or passed. What a wait writes ends at a time that was fixed when it was sent. An
//     extend and a release find that the hold was released. Release passes before it releases, so
//     that a take that comes between the two is released.
//   - The database restarts. What was committed is there. One that has lost rows grants anew, with
//     tokens by the wall clock; see the conditions of the dialect's guarantees.
//   - Two run on one connection. They do not: each statement has a connection for its own time. One
//     that others have left in a transaction is closed: see Dialect.Check.
//   - The commit fails after the statement has returned its row: what the try has returned is
//     forgotten with it.
//   - The clock begins anew, as SQLite's does when the machine starts. A hold that ends more than
//     its TTL from now was written before, and is shortened to that.
//   - ctx ends now. The statement may be committed or not: the reply is lost.
package sqllock
