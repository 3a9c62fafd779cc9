// Command lockervet finds mistakes in the use of locks. Package lockervet lists them.
//
//	go install github.com/go-locker/locker/lockervet/cmd/lockervet@latest
//	go vet -vettool=$(which lockervet) ./...
package main

import (
	"golang.org/x/tools/go/analysis/unitchecker"

	"github.com/go-locker/locker/lockervet"
)

func main() { unitchecker.Main(lockervet.Analyzer) }
