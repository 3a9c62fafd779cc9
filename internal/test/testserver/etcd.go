package testserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// EtcdServer is an etcd process, on its own or a member of a cluster. Its data outlives a Kill and is
// gone at the end of the test.
type EtcdServer struct {
	*process

	// With EtcdTLS: PEM files of the authority that signed the server's certificate, and of a
	// client certificate that the server accepts. Else empty.
	CAFile, CertFile, KeyFile string

	peerPort int
	data     string
	certs    *certificates
	client   *http.Client

	pid      atomic.Int64 // for the network between the members
	isolated bool
}

// EtcdOption changes how Etcd and EtcdCluster start their servers.
type EtcdOption func(*etcdOptions)

type etcdOptions struct {
	args           []string
	tls, network   bool
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

func newEtcd(t testing.TB, name string, certs *certificates) *EtcdServer {
	t.Helper()
	path := lookup(t, etcdServer)
	data := MemoryDir(t) // before the process, for etcd allocates 128 MB in it
	s := &EtcdServer{process: newProcess(t, name, path), data: data, client: &http.Client{
		// No connection is kept that a test which looks for leaks would find.
		Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second,
	}}
	s.isReady = func() error {
		s.pid.Store(int64(s.cmd.Process.Pid))
		return s.healthy()
	}
	if certs != nil {
		s.certs, s.CAFile, s.CertFile, s.KeyFile = certs, certs.ca, certs.clientCert, certs.clientKey
		s.client.Transport.(*http.Transport).TLSClientConfig = certs.clientConfig
	}
	return s
}

func (s *EtcdServer) configure(advertised int, members string, o etcdOptions) {
	s.args = []string{
		"--name=" + s.name, "--data-dir=" + s.dataDir(),
		"--listen-client-urls=" + s.endpoint(), "--advertise-client-urls=" + s.endpoint(),
		"--listen-peer-urls=http://" + loopback(s.peerPort),
		"--initial-advertise-peer-urls=http://" + loopback(advertised),
		"--initial-cluster=" + members,
		"--heartbeat-interval=20", "--election-timeout=200", "--unsafe-no-fsync",
		"--bcrypt-cost=4", // by default a password takes a tenth of a second, and much more on a busy machine
	}
	if s.certs != nil {
		s.args = append(s.args, "--client-cert-auth", "--trusted-ca-file="+s.certs.ca,
			"--cert-file="+s.certs.serverCert, "--key-file="+s.certs.serverKey)
	}
	s.args = slices.Concat(s.args, o.args)
}

func (s *EtcdServer) dataDir() string { return filepath.Join(s.data, "data") }

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
	resp, err := client.Post(s.endpoint()+"/v3/"+path, "application/json", bytes.NewReader(request))
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", path, resp.Status, answer)
	}
	if reply == nil {
		return nil
	}
	return json.Unmarshal(answer, reply)
}

// healthy returns nil when the server takes part in a majority that answers.
func (s *EtcdServer) healthy() error {
	resp, err := s.client.Get(s.endpoint() + "/health")
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return errors.New("health: " + resp.Status)
	}
	return nil
}

// URL returns "etcd://127.0.0.1:port", or "etcds://…" with EtcdTLS.
func (s *EtcdServer) URL() string { return scheme(s.certs) + s.Addr() }

func scheme(certs *certificates) string {
	if certs != nil {
		return "etcds://"
	}
	return "etcd://"
}

func (s *EtcdServer) endpoint() string {
	if s.certs != nil {
		return "https://" + s.Addr()
	}
	return "http://" + s.Addr()
}

// Wipe removes the data of a server that was killed. With all others of its cluster it starts anew.
func (s *EtcdServer) Wipe() {
	s.t.Helper()
	s.wipe(s.dataDir())
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

// Add starts one more member, which has all data when Add returns. Without
// EtcdArgs("--strict-reconfig-check=false") a cluster takes no new member in its first five seconds.
func (g *EtcdGroup) Add() *EtcdServer {
	g.t.Helper()
	if g.network != nil {
		g.t.Fatal("testserver: a cluster with EtcdPartitionable does not grow")
	}
	g.added++
	s := newEtcd(g.t, "added"+strconv.Itoa(g.added), g.servers[0].certs)
	s.port, s.peerPort = reservePort(g.t), reservePort(g.t)
	members := []string{s.name + "=http://" + loopback(s.peerPort)}
	for _, member := range g.servers {
		members = append(members, member.name+"=http://"+loopback(member.peerPort))
	}
	options := g.options
	options.args = append(slices.Clip(options.args), "--initial-cluster-state=existing")
	s.configure(s.peerPort, strings.Join(members, ","), options)
	leader := g.Leader()
	if err := leader.call("cluster/member/add", map[string][]string{"peerURLs": {"http://" + loopback(s.peerPort)}}, nil); err != nil {
		g.t.Fatalf("testserver: etcd: %v", err)
	}
	if err := s.serve(); err != nil {
		g.t.Fatalf("testserver: %s did not join: %v", s.name, err)
	}
	g.servers = append(g.servers, s)
	return s
}

// Remove takes a member out of the cluster, which ends it.
func (g *EtcdGroup) Remove(s *EtcdServer) {
	g.t.Helper()
	id, _, err := s.status()
	if err != nil {
		g.t.Fatalf("testserver: %s: %v", s.name, err)
	}
	g.servers = slices.DeleteFunc(g.servers, func(member *EtcdServer) bool { return member == s })
	if err := g.servers[0].call("cluster/member/remove", map[string]string{"ID": id}, nil); err != nil {
		g.t.Fatalf("testserver: %s: %v", s.name, err)
	}
	select {
	case <-s.exited:
	case <-time.After(goneTimeout):
		g.t.Fatalf("testserver: %s still runs %v after it was removed\n%s", s.name, goneTimeout, s.tail())
	}
}

// Backup returns a function that puts back the data of now, as after a disaster. The server is
// stopped and started again by both.
func (s *EtcdServer) Backup() (restore func()) {
	s.t.Helper()
	backup := MemoryDir(s.t)
	s.Terminate()
	if err := os.CopyFS(backup, os.DirFS(s.dataDir())); err != nil {
		s.t.Fatalf("testserver: %v", err)
	}
	s.Restart()
	return func() {
		s.t.Helper()
		s.Kill()
		if err := os.RemoveAll(s.dataDir()); err != nil {
			s.t.Fatalf("testserver: %v", err)
		}
		if err := os.CopyFS(s.dataDir(), os.DirFS(backup)); err != nil {
			s.t.Fatalf("testserver: %v", err)
		}
		s.Restart()
	}
}

// EtcdGroup is a cluster of etcd servers.
type EtcdGroup struct {
	group[*EtcdServer]

	options etcdOptions
	added   int
	network *etcdNetwork // between the members, with EtcdPartitionable
}

// EtcdCluster starts n servers that form a cluster and returns when all of them answer.
func EtcdCluster(t testing.TB, n int, opts ...EtcdOption) *EtcdGroup {
	t.Helper()
	var o etcdOptions
	for _, opt := range opts {
		opt(&o)
	}
	g := &EtcdGroup{group: group[*EtcdServer]{t: t}, options: o}
	var certs *certificates
	if o.tls {
		var err error
		if certs, err = writeCertificates(t.TempDir()); err != nil {
			t.Fatalf("testserver: %v", err)
		}
	}
	for i := range n {
		g.servers = append(g.servers, newEtcd(t, "etcd"+strconv.Itoa(i), certs))
	}
	perMember := 2
	if o.network {
		g.network = newEtcdNetwork(t, g.servers)
		perMember = 3
	}
	withPorts(t, "etcd", perMember*n, func(ports []int) error {
		advertised := ports[n : 2*n]
		g.configure(ports[:n], ports[len(ports)-n:], advertised)
		if g.network != nil {
			if err := g.network.open(advertised); err != nil {
				return err
			}
		}
		return g.start()
	})
	if o.user != "" {
		g.enableAuth(o)
	}
	return g
}

// configure gives each server its ports, that for its peers and the one under which they know it, and sets
// the arguments.
func (g *EtcdGroup) configure(ports, peerPorts, advertised []int) {
	members := make([]string, len(g.servers))
	for i, s := range g.servers {
		s.port, s.peerPort = ports[i], peerPorts[i]
		members[i] = s.name + "=http://" + loopback(advertised[i])
	}
	for i, s := range g.servers {
		s.configure(advertised[i], strings.Join(members, ","), g.options)
	}
}

// start starts the cluster. After an error no server runs, and nothing is left of them.
func (g *EtcdGroup) start() error {
	err := startAll(g.servers)
	if err == nil {
		return nil
	}
	for _, s := range g.servers {
		s.kill()
		err = errors.Join(err, os.RemoveAll(s.dataDir()))
	}
	if g.network != nil {
		g.network.close()
	}
	return err
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
		if err := s.call(call.path, call.body, nil); err != nil {
			g.t.Fatalf("testserver: etcd: %v", err)
		}
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
	return scheme(g.servers[0].certs) + strings.Join(g.Addrs(), ",")
}

// Leader waits until all members that run, and were not stopped or isolated, agree on one of them, and returns that.
func (g *EtcdGroup) Leader() *EtcdServer {
	g.t.Helper()
	var leader *EtcdServer
	await(g.t, "etcd agrees on a leader", func() (err error) {
		leader, err = g.agreed()
		return err
	})
	return leader
}

func (g *EtcdGroup) agreed() (leader *EtcdServer, err error) {
	byID, leaders := map[string]*EtcdServer{}, map[string]bool{}
	for _, s := range g.servers {
		if !s.responsive() || s.isolated {
			continue
		}
		member, leader, err := s.status()
		if err != nil {
			return nil, err
		}
		byID[member], leaders[leader] = s, true
	}
	if len(leaders) != 1 {
		return nil, fmt.Errorf("%d leaders", len(leaders))
	}
	for id := range leaders {
		leader = byID[id]
	}
	if leader == nil {
		return nil, errors.New("the leader is none of those that answer")
	}
	return leader, nil
}
