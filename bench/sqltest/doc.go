// Package sqltest tests package sqlfence on real databases: PostgreSQL, MariaDB and SQLite. It is not
// in package sqlfence, so that the module of that has no database driver in its go.mod.
// There is nothing in it to import.
package sqltest
