package testserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// EtcdServer is an etcd process, on its own or a member of a cluster. Its data outlives a Kill and is
// gone at the end of the test.
type EtcdServer struct {
	*process
	*Certificates // with EtcdTLS, and else nil

	peerPort int
	client   *http.Client
}

// EtcdOption changes how Etcd and EtcdCluster start their servers.
type EtcdOption func(*etcdOptions)

type etcdOptions struct {
	args           []string
	tls            bool
	user, password string
}

// EtcdArgs appends command-line arguments, such as "--max-txn-ops=256". What comes later wins.
func EtcdArgs(args ...string) EtcdOption {
	return func(o *etcdOptions) { o.args = append(o.args, args...) }
}

// EtcdTLS makes the servers accept only TLS from clients, with certificates made for this test, and ask
// clients for theirs.
func EtcdTLS() EtcdOption {
	return func(o *etcdOptions) { o.tls = true }
}

// EtcdAuth switches authentication on: root has that for a password too, and user may read and write
// keys that begin with "locker:" and no others.
func EtcdAuth(user, password string) EtcdOption {
	return func(o *etcdOptions) { o.user, o.password = user, password }
}

// Etcd starts a server and returns when it answers. It is killed when the test ends. It elects itself
// within 200 ms, and the shortest lease that it grants is 1 s.
func Etcd(t testing.TB, opts ...EtcdOption) *EtcdServer {
	t.Helper()
	return EtcdCluster(t, 1, opts...).servers[0]
}

func newEtcd(t testing.TB, name string, certs *Certificates) *EtcdServer {
	t.Helper()
	path := lookup(t, etcdServer) // its data are in memory: it allocates 128 MB
	s := &EtcdServer{
		process: newProcess(t, name, path, MemoryDir(t)), Certificates: certs, client: httpClient(certs, time.Second),
	}
	// It takes part in a majority that answers.
	s.isReady = func() error { _, err := answerTo(s.client.Get(s.endpoint() + "/health")); return err }
	return s
}

func (s *EtcdServer) configure(members string, o etcdOptions) {
	s.args = []string{
		"--name=" + s.name, "--data-dir=" + s.dataDir(),
		"--listen-client-urls=" + s.endpoint(), "--advertise-client-urls=" + s.endpoint(),
		"--listen-peer-urls=http://" + loopback(s.peerPort),
		"--initial-advertise-peer-urls=http://" + loopback(s.peerPort),
		"--initial-cluster=" + members,
		"--heartbeat-interval=20", "--election-timeout=200", "--unsafe-no-fsync",
		"--bcrypt-cost=4", // by default a password takes a tenth of a second, and much more on a busy machine
	}
	if s.Certificates != nil {
		s.args = append(s.args, "--client-cert-auth", "--trusted-ca-file="+s.CAFile,
			"--cert-file="+s.CertFile, "--key-file="+s.KeyFile)
	}
	s.args = slices.Concat(s.args, o.args)
}

// call posts a request to the server's JSON gateway and reads the answer into reply, if that is not nil.
func (s *EtcdServer) call(path string, body, reply any) error {
	request, err := json.Marshal(body)
	if err != nil {
		return err
	}
	client := *s.client
	if strings.HasPrefix(path, "auth/") {
		client.Timeout = readyTimeout // it hashes passwords, which takes long by intent
	}
	answer, err := answerTo(client.Post(s.endpoint()+"/v3/"+path, "application/json", bytes.NewReader(request)))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if reply == nil {
		return nil
	}
	return json.Unmarshal([]byte(answer), reply)
}

// URL returns "etcd://127.0.0.1:port", or "etcds://…" with EtcdTLS.
func (s *EtcdServer) URL() string { return scheme(s.Certificates) + s.Addr() }

func scheme(certs *Certificates) string {
	if certs != nil {
		return "etcds://"
	}
	return "etcd://"
}

func (s *EtcdServer) endpoint() string {
	if s.Certificates != nil {
		return "https://" + s.Addr()
	}
	return "http://" + s.Addr()
}

// status is what the server knows of its cluster.
func (s *EtcdServer) status() (member, leader string, err error) {
	var reply struct {
		Header struct {
			MemberID string `json:"member_id"`
		}
		Leader string
	}
	err = s.call("maintenance/status", struct{}{}, &reply)
	return reply.Header.MemberID, reply.Leader, err
}

// EtcdGroup is a cluster of etcd servers.
type EtcdGroup struct {
	group[*EtcdServer]

	options etcdOptions
}

// EtcdCluster starts n servers that form a cluster and returns when all of them answer.
func EtcdCluster(t testing.TB, n int, opts ...EtcdOption) *EtcdGroup {
	t.Helper()
	var o etcdOptions
	for _, opt := range opts {
		opt(&o)
	}
	g := &EtcdGroup{group: group[*EtcdServer]{t: t}, options: o}
	var certs *Certificates
	if o.tls {
		certs = NewCertificates(t)
	}
	for i := range n {
		g.servers = append(g.servers, newEtcd(t, "etcd"+strconv.Itoa(i), certs))
	}
	withPorts(t, "etcd", 2*n, func(ports []int) error {
		g.configure(ports[:n], ports[n:])
		return startAnew(g.servers)
	})
	if o.user != "" {
		g.enableAuth(o)
	}
	return g
}

// configure gives each server its port and that for its peers, and sets the arguments.
func (g *EtcdGroup) configure(ports, peerPorts []int) {
	members := make([]string, len(g.servers))
	for i, s := range g.servers {
		s.port, s.peerPort = ports[i], peerPorts[i]
		members[i] = s.name + "=http://" + loopback(peerPorts[i])
	}
	for _, s := range g.servers {
		s.configure(strings.Join(members, ","), g.options)
	}
}

// enableAuth makes the users and roles. It speaks to the first server, and waits for the others.
func (g *EtcdGroup) enableAuth(o etcdOptions) {
	g.t.Helper()
	s := g.servers[0]
	type object = map[string]any
	for _, call := range []struct {
		path string
		body object
	}{
		{"auth/user/add", object{"name": "root", "password": o.password}},
		{"auth/role/add", object{"name": "root"}},
		{"auth/user/grant", object{"user": "root", "role": "root"}},
		{"auth/user/add", object{"name": o.user, "password": o.password}},
		{"auth/role/add", object{"name": "locker"}},
		{"auth/role/grant", object{"name": "locker", "perm": object{
			"permType": "READWRITE", "key": []byte("locker:"), "range_end": []byte("locker;"),
		}}},
		{"auth/user/grant", object{"user": o.user, "role": "locker"}},
		{"auth/enable", object{}},
	} {
		s.check(s.call(call.path, call.body, nil))
	}
	await(g.t, "all members of etcd ask for passwords", func() error {
		for _, s := range g.servers {
			err := s.call("kv/range", object{"key": []byte("locker:")}, nil)
			if err == nil || !strings.Contains(err.Error(), "user name is empty") {
				return fmt.Errorf("%s, asked without a password: %w", s.name, err)
			}
		}
		return nil
	})
}

// URL returns "etcd://" with all members, or "etcds://…" with EtcdTLS.
func (g *EtcdGroup) URL() string {
	return scheme(g.servers[0].Certificates) + strings.Join(g.Addrs(), ",")
}

// Leader waits until all members that run, and were not stopped, agree on one of them, and returns that.
func (g *EtcdGroup) Leader() *EtcdServer {
	g.t.Helper()
	return settled(g.t, "etcd agrees on a leader", g.agreed)
}

func (g *EtcdGroup) agreed() (*EtcdServer, error) {
	byID, leaders := map[string]*EtcdServer{}, map[string]bool{}
	for _, s := range g.servers {
		if !s.responsive() {
			continue
		}
		member, leader, err := s.status()
		if err != nil {
			return nil, err
		}
		byID[member], leaders[leader] = s, true
	}
	for id := range leaders {
		if leader := byID[id]; leader != nil && len(leaders) == 1 {
			return leader, nil
		}
	}
	return nil, fmt.Errorf("%d leaders, or one that is none of those that answer", len(leaders))
}
