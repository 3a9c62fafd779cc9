package kubernetes

import (
	"net/http"
	"testing"
	"time"

	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/knownbreaks"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// The suite on a kube-apiserver over etcd, with all faults but FailOver and MoveClock: there is one
// of each, and both are Go programs, to whom no clock but the kernel's can be given.
func TestConformance(t *testing.T) {
	t.Run("one server", func(t *testing.T) {
		testwait.OnlyNightly(t, "make setup-nightly builds the server")
		s := testserver.Kube(t)
		h := harness.ForURL(2*time.Second, "kubernetes://%s?kubeconfig="+s.Kubeconfig(testserver.KubeAdmin), []string{s.Addr()})
		h.RW = nil // there are no shares
		h.Deviations = knownbreaks.Consensus()
		harness.Servers(&h.Faults, []*testserver.KubeServer{s}, s.Restart)
		h.Faults.Revoke = func(t conformance.TB, name string) {
			if _, err := s.Call(http.MethodDelete, "/apis/coordination.k8s.io/v1/namespaces/default/leases/"+objectName("locker:"+name), "", nil); err != nil {
				t.Fatalf("delete: %v", err)
			}
		}
		t.Parallel()
		conformance.Run(t, h)
	})
}
