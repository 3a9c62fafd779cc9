package main

import (
	_ "github.com/go-locker/locker/etcd"
	_ "github.com/go-locker/locker/memory"
	_ "github.com/go-locker/locker/redigo"
	_ "github.com/go-locker/locker/redis"
	_ "github.com/go-locker/locker/redlock"
	_ "github.com/go-locker/locker/zookeeper"
)
