package send

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/noanswer"
)

func TestExplain(t *testing.T) {
	require.NoError(t, explain(nil, false))
	for want, err := range map[string]error{
		"the server runs no scripts: ERR unknown command 'EVALSHA' (if it is a Sentinel, the URL needs the parameter master_name)": errors.New("ERR unknown command 'EVALSHA', with args beginning with: 'a' 'b'"),
		"no sentinel watches a primary of the name in master_name":                                                                 errors.New("redis: all sentinels specified in configuration are unreachable: redis: nil"),
		"the server has closed the connection (as a port for TLS does, if the URL is not one for TLS)":                             io.EOF,
		"dial: tls: no TLS (the URL is one for TLS, and the port speaks something else)":                                           fmt.Errorf("dial: %w", tls.RecordHeaderError{Msg: "no TLS"}),
		"ERR unknown command 'WAIT', with args":                                                                                    errors.New("ERR unknown command 'WAIT', with args"),
		"LOADING Redis is loading the dataset in memory":                                                                           errors.New("LOADING Redis is loading the dataset in memory"),
		"reading: EOF": fmt.Errorf("reading: %w", io.EOF),
	} {
		got := explain(err, false)
		require.EqualError(t, got, want)
		require.ErrorIs(t, got, err)
	}
	for _, text := range []string{"ASK 1 h:1", "MOVED 1 h:1"} {
		assert.True(t, noanswer.Outage(explain(errors.New(text), true)), "%s while a slot of a Cluster moves", text)
		assert.False(t, noanswer.Outage(explain(errors.New(text), false)), "%s to a client of one server is final", text)
	}
}
