package postgres_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence/sqlfence"
	"github.com/go-locker/locker/sql/postgres"
)

// Lock and data are in one database: the write checks the token in its own transaction.
func ExampleNew() {
	ctx := context.Background()
	const url = "postgres://app@localhost/app"
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	db, err := sql.Open("pgx", url)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = db.Close() }()
	client, err := postgres.New(pool)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Close() }()

	m := client.Mutex("orders/42")
	err = m.Do(ctx, func(ctx context.Context) error {
		token := m.FencingToken()
		return sqlfence.Exec(ctx, db, "orders/42", token,
			`UPDATE orders SET state = $1, token = $2 WHERE id = $3 AND token <= $2`, "paid", int64(token), 42)
	})
	fmt.Println(err)
}

// The backend is known by its URL once the package is imported.
func Example() {
	client, err := locker.Open(context.Background(), "postgres://app@localhost/app?table=jobs.locks")
	fmt.Println(err) // it connects at the first Lock
	_ = client.Close()
	// Output: <nil>
}
