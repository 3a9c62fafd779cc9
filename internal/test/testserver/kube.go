package testserver

import (
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// KubeServer is a kube-apiserver over an etcd of its own, and nothing else of Kubernetes. Its data
// is gone at the end of the test.
type KubeServer struct {
	*process

	Etcd *EtcdServer

	certs  *certificates
	client *http.Client
}

// The tokens of users: one may do all, the other what RBAC grants it.
const (
	KubeAdmin = "admin-token"
	KubeUser  = "user-token" // of the user app
)

const kubeInstall = "run make setup-nightly, which builds it"

// Kube starts an API server, and returns when the namespace default is there.
func Kube(t testing.TB) *KubeServer {
	t.Helper()
	path := lookup(t, server{"kube-apiserver", kubeInstall})
	etcd := Etcd(t)
	return etcd.newKube(t, path)
}

// Beside starts a second API server over the same etcd.
func (s *KubeServer) Beside(t testing.TB) *KubeServer {
	t.Helper()
	return s.Etcd.newKube(t, s.path)
}

func (etcd *EtcdServer) newKube(t testing.TB, path string) *KubeServer {
	t.Helper()
	s := &KubeServer{process: newProcess(t, "kube-apiserver", path), Etcd: etcd}
	s.patience, s.isReady = 3*time.Minute, s.ready
	var err error
	if s.certs, err = writeCertificates(s.dir); err != nil {
		t.Fatalf("testserver: %v", err)
	}
	users := KubeAdmin + `,admin,1,"system:masters"` + "\n" + KubeUser + ",app,2\n"
	if err := os.WriteFile(filepath.Join(s.dir, "users.csv"), []byte(users), 0o600); err != nil {
		t.Fatalf("testserver: %v", err)
	}
	s.client = &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.certs.clientConfig.RootCAs}, DisableKeepAlives: true},
		Timeout:   5 * time.Second,
	}
	s.begin(func(port int) []string {
		return []string{
			"--etcd-servers=" + etcd.endpoint(), "--bind-address=127.0.0.1", "--advertise-address=192.0.2.1", "--endpoint-reconciler-type=none", fmt.Sprintf("--secure-port=%d", port),
			"--cert-dir=" + s.dir, "--tls-cert-file=" + s.certs.serverCert, "--tls-private-key-file=" + s.certs.serverKey,
			"--service-cluster-ip-range=10.0.0.0/24", "--token-auth-file=" + filepath.Join(s.dir, "users.csv"), "--authorization-mode=RBAC",
			"--service-account-issuer=https://127.0.0.1", "--service-account-key-file=" + s.certs.serverCert, "--service-account-signing-key-file=" + s.certs.serverKey,
			"--disable-admission-plugins=ServiceAccount",
		}
	})
	return s
}

func (s *KubeServer) ready() error {
	for _, path := range []string{"/readyz", "/api/v1/namespaces/default"} {
		if _, err := s.Call(http.MethodGet, path, "", nil); err != nil {
			return err
		}
	}
	return nil
}

// Call makes a request as the user who may do all, and returns the answer. content is the type of
// body, or "".
func (s *KubeServer) Call(method, path, content string, body io.Reader) (string, error) {
	req, err := http.NewRequest(method, "https://"+s.Addr()+path, body)
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+KubeAdmin)
	if content != "" {
		req.Header.Set("Content-Type", content)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= http.StatusBadRequest {
		err = errors.New(path + ": " + resp.Status + ": " + string(answer))
	}
	return string(answer), err
}

// Kubeconfig writes a file for a user's token, and returns its name.
func (s *KubeServer) Kubeconfig(token string) string {
	s.t.Helper()
	file := filepath.Join(s.dir, fmt.Sprintf("%x.kubeconfig", sha256.Sum256([]byte(token))))
	text := strings.NewReplacer("ADDR", s.Addr(), "CA", s.certs.ca, "TOKEN", token).Replace(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "https://ADDR", certificate-authority: "CA"}}]
users: [{name: test, user: {token: TOKEN}}]
contexts: [{name: test, context: {cluster: test, user: test, namespace: default}}]
current-context: test
`)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		s.t.Fatalf("testserver: %v", err)
	}
	return file
}

// Stop freezes both servers.
func (s *KubeServer) Stop() {
	s.t.Helper()
	s.process.Stop()
	s.Etcd.Stop()
}

// Continue undoes Stop.
func (s *KubeServer) Continue() {
	s.t.Helper()
	s.Etcd.Continue()
	s.process.Continue()
}

// Kill ends both servers.
func (s *KubeServer) Kill() {
	s.t.Helper()
	s.process.Kill()
	s.Etcd.Kill()
}

// Wipe removes the data of servers that were killed.
func (s *KubeServer) Wipe() {
	s.t.Helper()
	s.Etcd.Wipe()
}

// Restart starts both servers again, with the data that there is.
func (s *KubeServer) Restart() {
	s.t.Helper()
	s.kill()
	s.Etcd.Restart()
	s.RestartAlone()
}

// RestartAlone kills the API server, and starts it again.
func (s *KubeServer) RestartAlone() {
	s.t.Helper()
	s.process.Restart()
}

// SharedKube returns an API server that several tests share, as SharedRedis does.
func SharedKube(t testing.TB) *KubeServer {
	t.Helper()
	return shared(t, func(t testing.TB, _ ...struct{}) *KubeServer { return Kube(t) })
}
