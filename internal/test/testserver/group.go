package testserver

import (
	"errors"
	"sync"
)

// startAll starts servers side by side. After an error some of them may run.
func startAll[S interface{ serve() error }](servers []S) error {
	errs := make([]error, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers {
		wg.Go(func() { errs[i] = s.serve() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func addrs[S interface{ Addr() string }](servers []S) []string {
	list := make([]string, len(servers))
	for i, s := range servers {
		list[i] = s.Addr()
	}
	return list
}
