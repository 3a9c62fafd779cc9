package sqlfence_test

import (
	"fmt"

	"github.com/go-locker/locker/fence/sqlfence"
)

// For those who have a tool for migrations: the statement that makes a guard table.
func ExampleTable_DDL() {
	ddl, err := sqlfence.Table{Dialect: sqlfence.SQLite}.DDL()
	fmt.Println(ddl, err)
	// Output:
	// CREATE TABLE IF NOT EXISTS fencing_tokens (resource TEXT NOT NULL PRIMARY KEY, token BIGINT NOT NULL) <nil>
}
