package testserver

import (
	"crypto/sha256"
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

	certs  *Certificates
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
	certs := NewCertificates(t)
	s := &KubeServer{
		process: newProcess(t, "kube-apiserver", path, t.TempDir()), Etcd: etcd,
		certs: certs, client: httpClient(certs, 5*time.Second),
	}
	s.patience, s.isReady = 3*time.Minute, s.ready
	users := KubeAdmin + `,admin,1,"system:masters"` + "\n" + KubeUser + ",app,2\n"
	s.check(os.WriteFile(filepath.Join(s.dir, "users.csv"), []byte(users), 0o600))
	s.begin(func(port int) []string {
		return []string{
			"--etcd-servers=" + etcd.endpoint(), "--bind-address=127.0.0.1", "--advertise-address=192.0.2.1", "--endpoint-reconciler-type=none", fmt.Sprintf("--secure-port=%d", port),
			"--cert-dir=" + s.dir, "--tls-cert-file=" + certs.CertFile, "--tls-private-key-file=" + certs.KeyFile,
			"--service-cluster-ip-range=10.0.0.0/24", "--token-auth-file=" + filepath.Join(s.dir, "users.csv"), "--authorization-mode=RBAC",
			"--service-account-issuer=https://127.0.0.1", "--service-account-key-file=" + certs.CertFile, "--service-account-signing-key-file=" + certs.KeyFile,
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
	answer, err := answerTo(s.client.Do(req))
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return answer, err
}

// Kubeconfig writes a file for a user's token, and returns its name.
func (s *KubeServer) Kubeconfig(token string) string {
	s.t.Helper()
	file := filepath.Join(s.dir, fmt.Sprintf("%x.kubeconfig", sha256.Sum256([]byte(token))))
	text := strings.NewReplacer("ADDR", s.Addr(), "CA", s.certs.CAFile, "TOKEN", token).Replace(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "https://ADDR", certificate-authority: "CA"}}]
users: [{name: test, user: {token: TOKEN}}]
contexts: [{name: test, context: {cluster: test, user: test, namespace: default}}]
current-context: test
`)
	s.check(os.WriteFile(file, []byte(text), 0o600))
	return file
}

// SharedKube returns an API server that several tests share, as SharedRedis does.
func SharedKube(t testing.TB) *KubeServer {
	t.Helper()
	return shared(t, func(t testing.TB, _ ...struct{}) *KubeServer { return Kube(t) })
}
