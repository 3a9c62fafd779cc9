package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // a kubeconfig may name an auth-provider
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/adapter"
	"github.com/go-locker/locker/internal/direct"
)

// New makes a Client whose locks are Leases of a namespace, as NewDriver does.
func New(client rest.Interface, namespace string, opts ...locker.Option) (*locker.Client, error) {
	d, err := NewDriver(client, namespace)
	if err != nil {
		return nil, err
	}
	return adapter.Client(d, opts...)
}

// backend is the Driver.
type backend struct {
	api   *api
	views views
	close func()

	sweeping sync.Mutex
	swept    time.Time // when a sweep last began

	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	running sync.WaitGroup // watches and sweeps
}

var _ interface {
	driver.Driver
	driver.Operator
	driver.TTLChecker
} = (*backend)(nil)

// NewDriver makes a Driver whose locks are Leases of a namespace. client is that of a clientset, as
// clientset.CoordinationV1().RESTClient() returns it. Its rate limiter does not count the requests.
// NewDriver makes no request. It fails for a client that cannot make requests, such as that of a
// fake clientset.
func NewDriver(client rest.Interface, namespace string) (driver.Driver, error) {
	c, ok := client.(*rest.RESTClient)
	switch {
	case !ok || c == nil:
		return nil, adapter.Refuse(fmt.Errorf("a client that is no *rest.RESTClient of client-go, but %T", client))
	case namespace == "":
		return nil, adapter.Refuse(errors.New("no namespace"))
	}
	by := c.Client
	if by == nil {
		by = http.DefaultClient
	}
	return newDriver(by, c.Get().AbsPath("/").URL(), namespace), nil
}

func newDriver(client *http.Client, base *url.URL, namespace string) *backend {
	leases := base.JoinPath("apis", coordinationv1.GroupName, "v1", "namespaces", namespace, "leases")
	d := &backend{api: &api{direct.Client(client), leases, namespace}, views: views{of: map[string]*view{}}, close: func() {}}
	d.ctx, d.stop = context.WithCancel(context.Background())
	return d
}

// Close ends the watches, and closes the connections if locker.Open has made them.
func (d *backend) Close() error {
	d.stop()
	d.running.Wait()
	d.close()
	return nil
}

// request reads the Lease of a name, makes it or updates it, and takes in how it is then.
func (d *backend) request(ctx context.Context, method, name string, sent *coordinationv1.Lease) (sighting, error) {
	began := time.Now()
	o, err := d.api.lease(ctx, method, objectName(name), sent)
	if apierrors.IsNotFound(err) {
		d.views.removed(name)
	}
	if err != nil {
		return sighting{}, err
	}
	return d.views.observe(name, o, began), nil
}

// read reads the Lease of a name.
func (d *backend) read(ctx context.Context, name string) (sighting, error) {
	return d.request(ctx, http.MethodGet, name, nil)
}

// CheckTTL refuses a TTL that leaseDurationSeconds cannot express: it has whole seconds.
func (d *backend) CheckTTL(ttl time.Duration) error {
	if ttl < time.Second || ttl%time.Second != 0 || ttl/time.Second > math.MaxInt32 {
		down := min(max(ttl.Truncate(time.Second), time.Second), (math.MaxInt32-1)*time.Second)
		return fmt.Errorf("%w: a TTL of %v: a Lease counts whole seconds, one or more: use %v or %v", driver.ErrUnsupported, ttl, down, down+time.Second)
	}
	return nil
}

// DefaultTTL leaves the default to the core.
func (d *backend) DefaultTTL() time.Duration { return 0 }

// Guarantees implements driver.Driver.
func (d *backend) Guarantees() driver.Guarantees {
	const clocks = "while the clocks of the API servers differ by less than 10 s (or one TTL if that is less), and no clock jumps forward by more than that"
	return driver.Guarantees{
		driver.Exclusive: {Level: driver.LevelConditional, Condition: clocks},
		driver.Failover:  {Level: driver.LevelConditional, Condition: clocks + ", and the cluster's store loses no data (an etcd that has a majority loses none)"},
		driver.Fencing:   {Level: driver.LevelYes},
		driver.FencingDurable: {
			Level:     driver.LevelConditional,
			Condition: "while the cluster's store keeps its data. If you restore etcd, use --bump-revision, or set WithTokenBase",
		},
		driver.Ordered: {Level: driver.LevelNo, Condition: "a release wakes the waiters of all processes, and the first to ask has the lock"},
		driver.Woken:   {Level: driver.LevelConditional, Condition: "if the program's account may watch Leases. Otherwise one waiter of each Client looks every two seconds"},
	}
}

func init() { driver.Register("kubernetes", open) }

// open makes an HTTP client of its own, which connects when it is first used.
func open(_ context.Context, u *driver.URL) (driver.Driver, error) {
	rules, overrides, err := loading(u)
	if err != nil {
		return nil, err
	}
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err := loaded.ClientConfig()
	if len(u.Hosts) == 1 {
		server := "https://" + u.Hosts[0]
		if err == nil {
			config.Host, config.ServerName = server, ""
		} else { // with an override client-go does not see that it is in a pod
			overrides.ClusterInfo.Server = server
			loaded = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
			config, err = loaded.ClientConfig()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("no cluster: neither a kubeconfig nor a pod's service account tells of one: %w", err)
	}
	namespace, _, err := loaded.Namespace()
	if err != nil {
		return nil, err
	}
	return dial(config, namespace)
}

// loading returns where to read of a cluster, and what of that the URL replaces.
func loading(u *driver.URL) (*clientcmd.ClientConfigLoadingRules, *clientcmd.ConfigOverrides, error) {
	rules, overrides := clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{}
	for name, to := range map[string]*string{
		"kubeconfig": &rules.ExplicitPath, "context": &overrides.CurrentContext, "namespace": &overrides.Context.Namespace,
	} {
		value, ok := u.Take(name)
		if ok && value == "" {
			return nil, nil, fmt.Errorf("parameter %s is empty", name)
		}
		*to = value
	}
	switch {
	case u.User != nil:
		return nil, nil, errors.New("kubernetes:// takes no user: a kubeconfig, or the service account of a pod, names the user")
	case strings.Trim(u.Path, "/") != "":
		return nil, nil, fmt.Errorf("path %q: kubernetes:// takes no path; for a namespace use the parameter namespace", u.Path)
	case len(u.Hosts) > 1:
		return nil, nil, errors.New("kubernetes:// takes one host: an address that stands for all API servers")
	}
	return rules, overrides, u.Unknown()
}

// dial makes a client whose connections nobody shares. It speaks HTTP/1.1, so that a request which
// is not answered ends its connection, and the next has another: all requests of HTTP/2 stand on
// one, and client-go takes 45 s to find out that it is dead.
func dial(config *rest.Config, namespace string) (driver.Driver, error) {
	config.NextProtos = []string{"http/1.1"}
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		Proxy: config.Proxy, TLSClientConfig: tls, TLSHandshakeTimeout: 10 * time.Second,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		MaxIdleConnsPerHost: 16, IdleConnTimeout: 90 * time.Second,
	}
	if transport.Proxy == nil {
		transport.Proxy = http.ProxyFromEnvironment
	}
	wrapped, err := rest.HTTPWrappersForConfig(config, transport)
	if err != nil {
		return nil, err
	}
	d := newDriver(&http.Client{Transport: wrapped}, base, namespace)
	d.close = transport.CloseIdleConnections
	return d, nil
}
