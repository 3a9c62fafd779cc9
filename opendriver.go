package locker

import (
	"context"
	"fmt"
)

// OpenDriver makes the Driver that u describes, for a Driver that is made of Drivers. The package that
// registered u.Scheme takes off u.Query what it knows; what is left is for the caller to refuse.
func OpenDriver(ctx context.Context, u *URL) (Driver, error) {
	open, err := opener(u.Scheme)
	if err != nil {
		return nil, err
	}
	d, err := open(ctx, u)
	if err == nil && d == nil {
		err = fmt.Errorf("the package of %s:// returned no Driver", u.Scheme)
	}
	return d, err
}
