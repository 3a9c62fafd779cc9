package main

import (
	_ "github.com/go-locker/locker/all"
	_ "github.com/go-locker/locker/kubernetes"
	_ "github.com/go-locker/locker/s3"
	_ "github.com/go-locker/locker/sql/mysql"
	_ "github.com/go-locker/locker/sql/postgres"
	_ "github.com/go-locker/locker/sql/sqlite"
)
