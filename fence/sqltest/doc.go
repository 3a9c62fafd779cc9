// Package sqltest tests package sqlfence on real databases: PostgreSQL, MariaDB and SQLite. It is a
// module of its own, so that the module of package sqlfence has no database driver in its go.mod.
// There is nothing in it to import.
package sqltest
