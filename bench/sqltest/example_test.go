package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	_ "modernc.org/sqlite"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/sqlfence"
)

// open is a database in memory, with a table.
func open(ddl string) *sql.DB {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		panic(err)
	}
	db.SetMaxOpenConns(1) // each connection has a database of its own
	if _, err := db.Exec(ddl); err != nil {
		panic(err)
	}
	return db
}

// The token is a condition of the statement that writes.
func ExampleExec() {
	ctx := context.Background()
	db := open(`CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT, token BIGINT NOT NULL DEFAULT 0);
		INSERT INTO orders (id, state) VALUES (42, 'new')`)
	defer db.Close()

	// Holder 33 is paused, its lock expires, and 34 gets it.
	update := `UPDATE orders SET state = $1, token = $2 WHERE id = $3 AND token <= $2`
	fmt.Println(sqlfence.Exec(ctx, db, "orders/42", 34, update, "paid", 34, 42))
	fmt.Println(sqlfence.Exec(ctx, db, "orders/42", 33, update, "cancelled", 33, 42))

	var state string
	_ = db.QueryRow(`SELECT state FROM orders WHERE id = 42`).Scan(&state)
	fmt.Println(state)
	// Output:
	// <nil>
	// fence: "orders/42": stale fencing token: 33, a later holder has written, or there is nothing to write to
	// paid
}

// With its column known, Exec says by whom the write was overtaken, and a row that is missing is no stale token.
func ExampleColumn_Exec() {
	ctx := context.Background()
	db := open(`CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT, token BIGINT NOT NULL DEFAULT 0);
		INSERT INTO orders (id, state, token) VALUES (42, 'paid', 34)`)
	defer db.Close()
	orders := sqlfence.Column{Dialect: sqlfence.SQLite, Table: "orders", Key: "id"}

	update := `UPDATE orders SET state = $1, token = $2 WHERE id = $3 AND token <= $2`
	fmt.Println(orders.Exec(ctx, db, 42, 33, update, "cancelled", 33, 42))
	fmt.Println(orders.Exec(ctx, db, 43, 33, update, "cancelled", 33, 43))
	// Output:
	// fence: "orders/42": stale fencing token: 33, the holder of 34 has written
	// sqlfence: "orders/43": no row was written, and the token is not the reason: there is none
}

// Check, raise and writes are one transaction.
func ExampleTable_Admit() {
	ctx := context.Background()
	db := open(`CREATE TABLE entries (account TEXT, amount INTEGER)`)
	defer db.Close()
	table := sqlfence.Table{Dialect: sqlfence.SQLite}
	if err := table.Create(ctx, db); err != nil {
		panic(err)
	}

	transfer := func(token uint64, amount int) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // does nothing after Commit
		if err := table.Admit(ctx, tx, "ledger", token); err != nil {
			return err
		}
		if _, err := tx.Exec(`INSERT INTO entries VALUES ('alice', ?), ('bob', ?)`, -amount, amount); err != nil {
			return err
		}
		return tx.Commit()
	}
	fmt.Println(transfer(34, 10))
	err := transfer(33, 99)
	fmt.Println(errors.Is(err, fence.ErrStale), err)
	// Output:
	// <nil>
	// true fence: "ledger": stale fencing token: 33, the holder of 34 has written
}

// A resource that keeps no token, and a guard in front of it that all processes share.
func ExampleGuard() {
	ctx := context.Background()
	db := open(`SELECT 1`)
	defer db.Close()
	table := sqlfence.Table{Dialect: sqlfence.SQLite}
	if err := table.Create(ctx, db); err != nil {
		panic(err)
	}
	guard := sqlfence.Guard{DB: db, Table: table}

	for _, token := range []uint64{34, 33} {
		err := guard.Write(ctx, "printer", token, func(context.Context) error {
			fmt.Println("printing for", token)
			return nil
		})
		fmt.Println(err)
	}
	// Output:
	// printing for 34
	// <nil>
	// fence: "printer": stale fencing token: 33, the holder of 34 has written
}
