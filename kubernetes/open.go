package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // a kubeconfig may name an auth-provider
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/go-locker/locker/driver"
)

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
