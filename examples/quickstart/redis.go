//go:build redis

package main

import _ "github.com/go-locker/locker/redis" // redis:// and rediss://
