package etcd_test

import "testing"

func TestSessions(t *testing.T) {
	t.Parallel()
	sessions(t).Run(t)
}
