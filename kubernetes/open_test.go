package kubernetes

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

func TestOpen(t *testing.T) {
	t.Setenv("KUBECONFIG", t.TempDir()+"/none")
	for rest, want := range map[string]string{
		"":                  "no cluster: neither a kubeconfig nor a pod's service account tells of one",
		"u:p@h":             "takes no user",
		"h/x":               `path "/x"`,
		"h1,h2":             "takes one host",
		"h?context=":        "parameter context is empty",
		"h?table=x":         `does not know the parameter "table": known are`,
		"?kubeconfig=/none": "/none",
		"h?ttl=1500ms":      "a Lease counts whole seconds, one or more: use 1s or 2s",
	} {
		_, err := locker.Open(t.Context(), "kubernetes://"+rest)
		require.ErrorContains(t, err, want, rest)
	}
	c, err := locker.Open(t.Context(), "kubernetes://192.0.2.1?namespace=x") // nobody has that address
	require.NoError(t, err, "it connects later")
	require.NoError(t, c.Close())
}
