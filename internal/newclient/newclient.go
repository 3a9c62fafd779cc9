// Package newclient makes the Client of a backend's New, whose Driver nobody else has.
package newclient

import "github.com/go-locker/locker"

// Of is a Client over d, which closes d; so does Of if there is none to be had, for an option is refused.
func Of(d locker.Driver, opts ...locker.Option) (*locker.Client, error) {
	c, err := locker.New(d, opts...)
	if err != nil {
		_ = d.Close()
		return nil, err
	}
	return c, nil
}
