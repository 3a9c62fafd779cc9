package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/sqlfence"
)

// For those who have a tool for migrations: the statement that makes a guard table.
func ExampleTable_DDL() {
	ddl, err := sqlfence.Table{Dialect: sqlfence.SQLite}.DDL()
	fmt.Println(ddl, err)
	// Output:
	// CREATE TABLE IF NOT EXISTS fencing_tokens (resource TEXT NOT NULL PRIMARY KEY, token BIGINT NOT NULL) <nil>
}

var (
	ctx = context.Background()
	db  *sql.DB       // of PostgreSQL, here
	m   *locker.Mutex // held
)

// The token is a condition of the statement that writes, and kept by it.
func ExampleExec() {
	token := m.FencingToken()
	err := sqlfence.Exec(ctx, db, "orders/42", token,
		`UPDATE orders SET state = $1, token = $2 WHERE id = $3 AND token <= $2`, "paid", token, 42)
	if errors.Is(err, fence.ErrStale) {
		fmt.Println("the lock is another's by now, and nothing was written")
	}
}

// With its column known, Exec says by whom the write was overtaken, and a row that is missing is no
// stale token.
func ExampleColumn_Exec() {
	orders := sqlfence.Column{Dialect: sqlfence.Postgres, Table: "orders", Key: "id"}
	token := m.FencingToken()
	err := orders.Exec(ctx, db, 42, token,
		`UPDATE orders SET state = $1, token = $2 WHERE id = $3 AND token <= $2`, "paid", token, 42)
	switch stale, ok := errors.AsType[*fence.StaleError](err); {
	case ok:
		fmt.Println("the holder of", stale.Newest, "has written")
	case errors.Is(err, sqlfence.ErrNoRow):
		fmt.Println("there is no such order")
	}
}

// Check, raise and writes are one transaction.
func ExampleTable_Admit() {
	tokens := sqlfence.Table{Dialect: sqlfence.Postgres}
	transfer := func(amount int) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // does nothing after Commit
		if err := tokens.Admit(ctx, tx, "ledger", m.FencingToken()); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO entries VALUES ('alice', $1), ('bob', $2)`, -amount, amount); err != nil {
			return err
		}
		return tx.Commit()
	}
	fmt.Println(transfer(10))
}

// A resource that keeps no token, and a guard in front of it that all processes share.
func ExampleTable_Guard() {
	guard := sqlfence.Table{Dialect: sqlfence.Postgres}.Guard(db)
	err := guard.Write(ctx, "printer", m.FencingToken(), func(context.Context) error {
		fmt.Println("printing")
		return nil
	})
	fmt.Println(err)
}
