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

// OpenFunc makes the Driver that a URL describes. It takes off u.Query, with [URL.Take] or Del,
// each parameter that it knows; locker.Open refuses what is left. The parameters that every backend
// has, such as ttl and prefix, are off already. It refuses what it does not take: a user, a path,
// several hosts. ctx bounds the OpenFunc alone, not what it makes. It connects when the first call
// needs that, so that an application starts while its backend is unreachable. The Driver owns what
// OpenFunc makes: its Close closes it. No error shows a password.
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

// Open makes the Driver that u describes, for a Driver that is made of Drivers. The package that
// registered u.Scheme takes off u.Query what it knows; the caller refuses what is left. It fails if
// no package has registered u.Scheme, and with the error of its OpenFunc.
func Open(ctx context.Context, u *URL) (Driver, error) {
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

func opener(scheme string) (OpenFunc, error) {
	registry.Lock()
	open, ok := registry.schemes[scheme]
	registry.Unlock()
	if ok {
		return open, nil
	}
	if b, ok := backends.Of(scheme); ok {
		return nil, fmt.Errorf("unknown scheme %q: add the import _ \"github.com/go-locker/locker/%s\"", scheme, b.Package)
	}
	known := "none is registered: import the package of a backend"
	if schemes := Schemes(); len(schemes) > 0 {
		known = "registered are " + strings.Join(schemes, ", ")
	}
	return nil, fmt.Errorf("unknown scheme %q: %s", scheme, known)
}
