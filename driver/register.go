package driver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/go-locker/locker/internal/backends"
)

// OpenFunc makes the Driver that a URL describes. It removes from u.Query, with [URL.Take] or Del,
// each parameter that it knows; locker.Open refuses what is left. The parameters that every backend
// has, such as ttl and prefix, have been taken off before. The OpenFunc refuses parts of the URL
// that it has no use for, such as a user, a path, or several hosts. ctx bounds the OpenFunc alone,
// not the Driver. If it can, the Driver connects only when the first call needs a connection. Then
// an application starts while its backend is unreachable. Close of the Driver closes all that the
// OpenFunc has made. No error shows a password.
type OpenFunc func(ctx context.Context, u *URL) (Driver, error)

var registry struct {
	sync.Mutex
	schemes map[string]OpenFunc
}

// Register makes a scheme known to locker.Open. Adapters call it in their init. It panics if the
// scheme is empty, not in lower case, or registered already, and if open is nil.
func Register(scheme string, open OpenFunc) {
	if scheme == "" || scheme != strings.ToLower(scheme) {
		panic(fmt.Sprintf("locker: Register of scheme %q: must be in lower case and not empty", scheme))
	}
	if open == nil {
		panic(fmt.Sprintf("locker: Register of scheme %q: nil OpenFunc", scheme))
	}
	registry.Lock()
	defer registry.Unlock()
	if _, dup := registry.schemes[scheme]; dup {
		panic(fmt.Sprintf("locker: Register of scheme %q: registered already", scheme))
	}
	if registry.schemes == nil {
		registry.schemes = map[string]OpenFunc{}
	}
	registry.schemes[scheme] = open
}

// Schemes returns the registered schemes, in order: those that locker.Open opens.
func Schemes() []string {
	registry.Lock()
	defer registry.Unlock()
	return slices.Sorted(maps.Keys(registry.schemes))
}

// Open makes the Driver that u describes. It is for a Driver that consists of other Drivers, such
// as that of redlock. The OpenFunc of u.Scheme removes from u.Query the parameters that it knows.
// The caller refuses those that are left. Open fails if no package has registered u.Scheme, or if
// the OpenFunc fails.
func Open(ctx context.Context, u *URL) (Driver, error) {
	registry.Lock()
	open, ok := registry.schemes[u.Scheme]
	registry.Unlock()
	if !ok {
		return nil, unknown(u.Scheme)
	}
	d, err := open(ctx, u)
	if err == nil && d == nil {
		err = fmt.Errorf("the package of %s:// returned no Driver", u.Scheme)
	}
	return d, err
}

// unknown returns the error for a scheme that no package has registered.
func unknown(scheme string) error {
	if b, ok := backends.Of(scheme); ok {
		return fmt.Errorf("unknown scheme %q: add the import _ \"github.com/go-locker/locker/%s\"", scheme, b.Folder())
	}
	known := "none is registered: import the package of a backend"
	if schemes := Schemes(); len(schemes) > 0 {
		known = "registered are " + strings.Join(schemes, ", ")
	}
	return fmt.Errorf("unknown scheme %q: %s", scheme, known)
}
