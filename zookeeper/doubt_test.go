package zookeeper_test

import (
	"testing"
)

func TestLostReply_ofAnUnlock_isASuccess(t *testing.T) {
	t.Parallel()
	sessions(t).UnlockUnanswered(t)
}
