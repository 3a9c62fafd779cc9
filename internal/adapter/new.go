// Package adapter has what adapters share: how they make Drivers and Clients, and how they read
// URLs. A function that reads a parameter of a URL takes it off the query.
package adapter

import (
	"errors"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
)

// Refuse returns the error of a NewDriver that fails because of why.
func Refuse(why error) error { return &driver.Error{Op: "new", Err: why} }

// Apply applies opts to to. It fails for a nil option, and for one that is not valid.
func Apply[To any, Option ~func(To) error](to To, opts []Option) error {
	for _, opt := range opts {
		if opt == nil {
			return Refuse(errors.New("nil DriverOption"))
		}
		if err := opt(to); err != nil {
			return Refuse(err)
		}
	}
	return nil
}

// Client makes a Client over d, which an adapter's New has made. If an option is refused, it closes
// d and returns the error.
func Client(d driver.Driver, opts ...locker.Option) (*locker.Client, error) {
	c, err := locker.New(d, opts...)
	if err != nil {
		_ = d.Close()
		return nil, err
	}
	return c, nil
}
