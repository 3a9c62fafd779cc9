package testserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
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

	port, peerPort int
	data           string
	certs          *certificates
	client         *http.Client

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

// serve starts the server and returns when it answers.
func (s *EtcdServer) serve() error {
	return s.start(func() error {
		s.pid.Store(int64(s.cmd.Process.Pid))
		return s.healthy()
	})
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

// Addr returns the "127.0.0.1:port" for clients. It stays the same for all of the server's life.
func (s *EtcdServer) Addr() string { return loopback(s.port) }

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

// Restart kills the server if it runs and starts it again, on the same ports and with the data that it
// has. It returns when the server answers, which takes a majority of its cluster: one that was lost as
// a whole restarts by [EtcdGroup.Restart].
func (s *EtcdServer) Restart() {
	s.t.Helper()
	s.kill()
	if err := s.serve(); err != nil {
		s.t.Fatalf("testserver: %s did not start again on port %d: %v", s.name, s.port, err)
	}
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
