package zookeeper

import (
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// A leader whom the others have left, and who does not know it: what it answers proves nothing of a session, and what would prove
// something it does not answer.
func TestProof_isWhatAQuorumHasAnswered(t *testing.T) {
	testwait.OnlyNightly(t, "in TestCluster_theHoldersServerIsCutOff a server answers without a quorum, and the holder has to know")
	t.Parallel()
	const ttl = 30 * time.Second
	g := testserver.ZooKeeperEnsemble(t, 3, testserver.ZooKeeperPartitionable(), testserver.ZooKeeperConfig("syncLimit=80"))
	conn := connAt(t, ttl, g.Leader().Addr())
	d := driverOn(t, conn)
	l, err := d.contend(t.Context(), driver.Request{Name: "p:x", TTL: ttl}, d.outage(ttl, unheard))
	require.NoError(t, err)
	s := l.session
	open, closed := d.acl, zk.WorldACL(zk.PermRead)
	require.NoError(t, s.makeParents(t.Context(), "/locks"))
	require.NoError(t, s.makeParents(t.Context(), "/locks"), "it is there")
	_, err = conn.Create("/closed", nil, 0, closed)
	require.NoError(t, err)
	kinds := map[string]error{
		"create": nil, "create, closed": zk.ErrNoAuth, "create, no parent": zk.ErrNoNode, "delete": zk.ErrNoNode,
		"check": nil, "check, missing": zk.ErrNoNode, "container": zk.ErrNodeExists,
	}
	write := func(kind string, conn *zk.Conn) (err error) {
		switch kind {
		case "create":
			_, err = conn.Create("/locks/x", nil, zk.FlagEphemeralSequential, open)
		case "create, closed":
			_, err = conn.Create("/closed/x", nil, zk.FlagEphemeralSequential, open)
		case "create, no parent":
			_, err = conn.Create("/missing/x", nil, zk.FlagEphemeralSequential, open)
		case "delete":
			err = conn.Delete("/missing", -1)
		case "check":
			_, err = conn.Multi(&zk.CheckVersionRequest{Path: "/locks", Version: -1})
		case "check, missing":
			_, err = conn.Multi(&zk.CheckVersionRequest{Path: "/missing", Version: -1})
		case "container":
			_, err = conn.CreateContainer("/locks", nil, zk.FlagContainer, open)
		}
		return err
	}
	for kind, want := range kinds {
		require.ErrorIs(t, write(kind, conn), want, kind)
	}

	g.Isolate(g.Leader())
	time.Sleep(3 * d.tick) // what there was of contacts is ripe
	s.mu.Lock()
	proven := s.life.proven
	s.mu.Unlock()
	require.NoError(t, s.touch(t.Context()))
	_, err = l.find(t.Context(), &creation{id: s.id})
	require.NoError(t, err, "it answers a sync")
	_, err = call(t.Context(), s, 0, func(conn *zk.Conn) (struct{}, error) { return struct{}{}, conn.AddAuth("digest", []byte("a:b")) })
	require.NoError(t, err)
	s.mu.Lock()
	assert.Equal(t, proven, s.life.proven)
	s.mu.Unlock()

	answers := make(chan error, len(kinds))
	for kind := range kinds {
		go func() {
			if err := write(kind, conn); !errors.Is(err, zk.ErrConnectionClosed) {
				answers <- errors.Join(errors.New(kind), err)
			}
		}()
	}
	select {
	case err := <-answers:
		t.Errorf("a leader without followers has answered: %v", err)
	case <-time.After(500 * time.Millisecond):
	}
	g.Heal()
}
