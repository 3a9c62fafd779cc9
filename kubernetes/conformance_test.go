package kubernetes

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/knownbreaks"
	"github.com/go-locker/locker/internal/test/fuzzurl"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

func TestOpen(t *testing.T) {
	t.Setenv("KUBECONFIG", t.TempDir()+"/none")
	for rest, want := range map[string]string{
		"":                       "no cluster: neither a kubeconfig nor a pod's service account tells of one",
		"u:p@h":                  "takes no user",
		"h/x":                    `path "/x"`,
		"h1,h2":                  "takes one host",
		"h?context=":             "parameter context is empty",
		"h?table=x":              `does not know the parameter "table": known are`,
		"?kubeconfig=/none":      "/none",
		"h?ttl=2562047h47m16.5s": "use 596523h14m6s or 596523h14m7s",
		"h?ttl=1500ms":           "a Lease counts whole seconds, one or more: use 1s or 2s",
	} {
		_, err := locker.Open(t.Context(), "kubernetes://"+rest)
		require.ErrorContains(t, err, want, rest)
	}
	c, err := locker.Open(t.Context(), "kubernetes://192.0.2.1?namespace=x") // nobody has that address
	require.NoError(t, err, "it connects later")
	require.NoError(t, c.Close())
}

// bearers has a fake keep the tokens that it is sent.
func (f *fake) bearers() (tokens map[string]bool) {
	tokens = map[string]bool{}
	f.answer = func(_ http.ResponseWriter, r *http.Request) bool {
		tokens[r.Header.Get("Authorization")] = true
		return false
	}
	return tokens
}

func tryURL(t *testing.T, url string) {
	t.Helper()
	c, err := locker.Open(t.Context(), url)
	require.NoError(t, err)
	require.NoError(t, c.Mutex("x").TryLock(t.Context()))
	require.NoError(t, c.Close())
}

// A host in the URL replaces that of the pod's API server, and nothing else: the token, the
// certificate and the namespace are those of the pod.
func TestOpen_aHostInAPod(t *testing.T) {
	const host = "LOCKER_TEST_POD_HOST"
	if os.Getenv(host) != "" {
		tryURL(t, "kubernetes://"+os.Getenv(host))
		return
	}
	f, files := newFake(t), t.TempDir()
	tokens := f.bearers()
	for name, content := range map[string]string{
		"token": "of-the-pod", "namespace": "jobs",
		"ca.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw})),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(files, name), []byte(content), 0o600))
	}
	isolated := []string{"--map-root-user", "--mount", "sh", "-c", `mount -t tmpfs none "$(realpath /var/run)" && cd /var/run &&
		mkdir -p secrets/kubernetes.io && cp -r "$1" secrets/kubernetes.io/serviceaccount && exec "$2" -test.run='^TestOpen_aHostInAPod$'`, "sh", files}
	if out, err := exec.Command("unshare", append(isolated, "true")...).CombinedOutput(); err != nil {
		t.Skipf("no namespaces here: %v %s", err, out)
	}
	cmd := exec.Command("unshare", append(isolated, os.Args[0])...)
	cmd.Env = append(os.Environ(), host+"="+f.Listener.Addr().String(), "KUBECONFIG=/none", "KUBERNETES_SERVICE_HOST=192.0.2.1", "KUBERNETES_SERVICE_PORT=443")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, map[string]bool{"Bearer of-the-pod": true}, tokens)
	for _, l := range f.leases {
		assert.Equal(t, "jobs", l.Namespace)
	}
}

func TestOpen_anAuthProvider(t *testing.T) {
	f := newFake(t)
	tokens := f.bearers()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	config := f.kubeconfig()
	token := "e30." + base64.RawURLEncoding.EncodeToString([]byte(`{"exp":32503680000}`)) + ".e30"
	config.AuthInfos["user"] = &clientcmdapi.AuthInfo{AuthProvider: &clientcmdapi.AuthProviderConfig{Name: "oidc", Config: map[string]string{
		"idp-issuer-url": "https://192.0.2.1", "client-id": "x", "id-token": token,
	}}}
	config.Contexts["fake"].AuthInfo = "user"
	require.NoError(t, clientcmd.WriteToFile(*config, file))
	tryURL(t, "kubernetes://"+f.Listener.Addr().String()+"?kubeconfig="+file)
	assert.Equal(t, map[string]bool{"Bearer " + token: true}, tokens)
}

// The suite on a kube-apiserver over etcd, with all faults but FailOver and MoveClock: there is one
// of each, and both are Go programs, to whom no clock but the kernel's can be given.
func TestConformance(t *testing.T) {
	t.Run("one server", func(t *testing.T) {
		testwait.OnlyNightly(t, "make setup-nightly builds the server")
		s := testserver.Kube(t)
		h := harness.ForURL(2*time.Second, "kubernetes://%s?kubeconfig="+s.Kubeconfig(testserver.KubeAdmin), []string{s.Addr()})
		h.RW = nil // there are no shares
		h.Deviations = knownbreaks.Consensus()
		harness.Servers(&h.Faults, []harness.Server{s, s.Etcd}, func() {
			s.Etcd.Restart()
			s.Restart()
		})
		h.Faults.Revoke = func(t conformance.TB, name string) {
			if _, err := s.Call(http.MethodDelete, "/apis/coordination.k8s.io/v1/namespaces/default/leases/"+objectName("locker:"+name), "", nil); err != nil {
				t.Fatalf("delete: %v", err)
			}
		}
		t.Parallel()
		conformance.Run(t, h)
	})
}

// The suite on the fake, with the faults of a network and of processes in make nightly: see there
// what it is worth.
func TestFake_conformance(t *testing.T) {
	f := newFake(t)
	h := harness.ForURL(2*time.Second, f.url(t), []string{f.Listener.Addr().String()})
	h.RW = nil // there are no shares
	if os.Getenv("LOCKER_NIGHTLY") == "" {
		h.TTL, h.Faults = time.Second, conformance.Faults{}
	}
	conformance.Run(t, h)
}

func FuzzOpen(f *testing.F) {
	fuzzurl.Run(f, "kubernetes", func(_ context.Context, u *driver.URL) (driver.Driver, error) {
		_, _, err := loading(u)
		return nil, err
	}, "h:6443?kubeconfig=x&context=a&namespace=b", "h/x", "h1,h2", "?context=")
}

func TestMain(m *testing.M) {
	harness.Serve()
	goleak.VerifyTestMain(testserver.Tests(m))
}
