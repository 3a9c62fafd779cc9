package main

import (
	_ "github.com/go-locker/locker/all"
	_ "github.com/go-locker/locker/kubernetes"
	_ "github.com/go-locker/locker/postgres"
)
