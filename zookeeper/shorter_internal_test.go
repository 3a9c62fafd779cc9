package zookeeper

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"

	"github.com/go-locker/locker/internal/clock"
)

// A session is taken up by a server whose configuration grants less: it ends sooner than its holds
// were told.
func TestSession_thatIsGrantedLessWhenItIsTakenUpAgain(t *testing.T) {
	d := newDriver(nil)
	defer func() { _ = d.Close() }()
	taken := func(s *session, timeout time.Duration, id int64) {
		s.resumed(&link{began: clock.Now()}, id, timeout)
	}
	s := newSession(d, 10*time.Second, false)
	s.conn, s.id = new(zk.Conn), 7
	s.heartbeats.confirm(clock.Now().Add(-time.Second))
	before := s.heartbeats.latest()
	taken(s, 10*time.Second, 8)
	assert.Equal(t, before, s.heartbeats.latest(), "not of this session")
	taken(s, 10*time.Second, 7)
	assert.True(t, s.heartbeats.latest().After(before))
	assert.Positive(t, s.Left())
	taken(s, 9*time.Second, 7)
	assert.True(t, s.Ended())
	assert.Zero(t, s.Left())
}
