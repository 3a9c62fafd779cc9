package driver

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// URL is the address of a backend, taken apart. However it is printed, it shows no password:
// neither that of the user nor the value of a parameter whose name ends in password.
type URL struct {
	Scheme string        // in lower case
	User   *url.Userinfo // nil if there is none
	Hosts  []string      // host or host:port each, IPv6 in brackets; none if the URL has none
	Path   string        // with its leading slash, unescaped
	Query  url.Values    // what nobody has taken yet

	// known has the parameters that were asked for, as its keys; nil if nobody will want to know.
	// All copies of a URL share it, such as those for the nodes of a Driver made of Drivers.
	known *sync.Map
}

// Take removes a parameter from the query and returns its value. If locker.Open refuses a
// parameter, its error lists all that were asked for by Take, whether they were there or not.
func (u *URL) Take(parameter string) (value string, ok bool) {
	if u.known != nil {
		u.known.Store(parameter, nil)
	}
	values, ok := u.Query[parameter]
	if !ok {
		return "", false
	}
	delete(u.Query, parameter)
	return values[0], true
}

// Unknown returns an error if there are parameters that nobody has taken. It names one of them, and
// those that were asked for. locker.Open calls it after the OpenFunc. An OpenFunc that connects, or
// starts anything, calls it first.
func (u *URL) Unknown() error {
	if len(u.Query) == 0 {
		return nil
	}
	message := fmt.Sprintf("%s:// does not know the parameter %q", u.Scheme, slices.Min(slices.Collect(maps.Keys(u.Query))))
	var known []string
	if u.known != nil {
		u.known.Range(func(name, _ any) bool {
			known = append(known, name.(string))
			return true
		})
	}
	if slices.Sort(known); known != nil {
		message += ": known are " + strings.Join(known, ", ")
	}
	return errors.New(message)
}

// String returns the URL with xxxxx in place of passwords. If there are none, ParseURL makes the
// same URL of it.
func (u URL) String() string {
	var s strings.Builder
	s.WriteString(u.Scheme + "://")
	if u.User != nil {
		user := u.User
		if _, ok := user.Password(); ok {
			user = url.UserPassword(user.Username(), "xxxxx")
		}
		s.WriteString(user.String() + "@")
	}
	s.WriteString(strings.Join(u.Hosts, ","))
	path := url.URL{Path: u.Path}
	s.WriteString(strings.ReplaceAll(path.EscapedPath(), "@", "%40"))
	query := url.Values{}
	for name, values := range u.Query {
		if query[name] = values; strings.HasSuffix(strings.ToLower(name), "password") {
			query[name] = []string{"xxxxx"}
		}
	}
	if len(query) > 0 {
		s.WriteString("?" + query.Encode())
	}
	return s.String()
}

// Format prints String for every verb. Without Format, %d would print the fields.
func (u URL) Format(f fmt.State, verb rune) { fmt.Fprintf(f, fmt.FormatString(f, verb), u.String()) }

// MarshalText returns String, for JSON, and loggers that write it.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// ParseURL takes rawURL apart. It fails for a malformed URL, and for a parameter that is given
// twice. No error shows a piece of the URL that might be part of a password: a password with an
// unescaped '/' or '?' ends up in the path or the query. Package net/url does not parse lists of
// hosts, and its errors show the password.
func ParseURL(rawURL string) (*URL, error) {
	scheme, rest, ok := strings.Cut(rawURL, "://")
	if !ok || scheme == "" || strings.ContainsAny(scheme, "/?#@:") {
		return nil, errors.New("malformed URL: it must begin with scheme://, as in redis://localhost:6379")
	}
	u := &URL{Scheme: strings.ToLower(scheme), Query: url.Values{}, known: new(sync.Map)}
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	if strings.ContainsAny(tail, "@#") {
		return nil, fmt.Errorf("malformed %s URL: an '@' or '#' after the hosts: "+
			"in a password escape '/' as %%2F, '?' as %%3F, '#' as %%23, '@' as %%40; elsewhere escape '@' and '#'", u.Scheme)
	}
	path, query, _ := strings.Cut(tail, "?")
	var err error
	if u.Path, err = url.PathUnescape(path); err != nil {
		return nil, fmt.Errorf("malformed %s URL: bad %%-escape in the path", u.Scheme)
	}
	user, hosts, hasUser := strings.Cut(authority, "@")
	if !hasUser {
		hosts = authority
	}
	if strings.Contains(hosts, "@") {
		return nil, fmt.Errorf("malformed %s URL: a second '@' before the path: "+
			"in user and password write '@' as %%40; one user and password, before the first host, are those of all hosts", u.Scheme)
	}
	if hasUser {
		if u.User, err = parseUser(user); err != nil {
			return nil, fmt.Errorf("malformed %s URL: %w", u.Scheme, err)
		}
	}
	if u.Hosts, err = parseHosts(hosts); err != nil {
		return nil, fmt.Errorf("malformed %s URL: %w", u.Scheme, err)
	}
	if u.Query, err = parseQuery(query); err != nil {
		return nil, fmt.Errorf("malformed %s URL: %w", u.Scheme, err)
	}
	return u, nil
}

func parseUser(s string) (*url.Userinfo, error) {
	name, password, hasPassword := strings.Cut(s, ":")
	name, err1 := url.PathUnescape(name)
	password, err2 := url.PathUnescape(password)
	if err1 != nil || err2 != nil {
		return nil, errors.New("bad %-escape in user or password: escape '%' as %25")
	}
	if !hasPassword {
		return url.User(name), nil
	}
	return url.UserPassword(name, password), nil
}

func parseHosts(s string) ([]string, error) {
	if s == "" {
		return nil, nil
	}
	hosts := strings.Split(s, ",")
	for i, h := range hosts {
		if zone := strings.Index(h, "%25"); zone >= 0 && !strings.HasPrefix(h[zone+3:], "]") {
			h = h[:zone+1] + h[zone+3:] // as RFC 6874 has it
			hosts[i] = h
		}
		if !validHost(h) {
			return nil, fmt.Errorf("entry %d of %d in the list of hosts is not host, host:port or [IPv6]:port, with a port from 1 to 65535", i+1, len(hosts))
		}
	}
	return hosts, nil
}

func validHost(s string) bool {
	name, port := s, ""
	if i := strings.LastIndexByte(s, ':'); i > strings.LastIndexByte(s, ']') {
		name, port = s[:i], s[i+1:]
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return false
		}
	}
	if inner, ok := strings.CutPrefix(name, "["); ok {
		address, ok := strings.CutSuffix(inner, "]")
		ip, err := netip.ParseAddr(address) // with an IPv6 zone or without
		return ok && err == nil && ip.Is6() && (ip.Zone() == "" || validName(ip.Zone()))
	}
	return validName(name)
}

// validName is for names of hosts and zones.
func validName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r == 0x7f || strings.ContainsRune(`:[]%"<>\^{|}`+"`", r)
	})
}

func parseQuery(s string) (url.Values, error) {
	values := url.Values{}
	if s == "" {
		return values, nil
	}
	for i, pair := range strings.Split(s, "&") {
		name, value, ok := strings.Cut(pair, "=")
		name, err1 := url.QueryUnescape(name)
		value, err2 := url.QueryUnescape(value)
		if !ok || name == "" || err1 != nil || err2 != nil {
			return nil, fmt.Errorf("parameter %d is not name=value, or has a bad %%-escape", i+1)
		}
		if _, dup := values[name]; dup {
			return nil, fmt.Errorf("parameter %q is given twice", name)
		}
		values[name] = []string{value}
	}
	return values, nil
}
