package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence/sqlfence"
	"github.com/go-locker/locker/sql/mysql"
)

func Example() {
	ctx := context.Background()
	client, err := locker.Open(ctx, "mysql://app:s3cret@db1/app?tls=true")
	if err != nil {
		log.Print(err)
		return
	}
	defer func() { _ = client.Close() }()
	err = client.Mutex("invoices/2026-11").Do(ctx, func(context.Context) error {
		fmt.Println("one at a time")
		return nil
	})
	fmt.Println(err)
}

// A write that checks the token changes nothing after its lock was lost.
func ExampleNew() {
	ctx := context.Background()
	db, err := sql.Open("mysql", "app:s3cret@tcp(db1)/app?interpolateParams=true")
	if err != nil {
		log.Print(err)
		return
	}
	client, err := mysql.New(db, locker.WithTTL(30*time.Second))
	if err != nil {
		log.Print(err)
		return
	}
	defer func() { _ = client.Close() }()
	m := client.Mutex("orders/42")
	err = m.Do(ctx, func(ctx context.Context) error {
		token := m.FencingToken()
		return sqlfence.Exec(ctx, db, "orders/42", token,
			"UPDATE orders SET state = 'paid', token = ? WHERE id = 42 AND token <= ?", token, token)
	})
	fmt.Println(err)
}
