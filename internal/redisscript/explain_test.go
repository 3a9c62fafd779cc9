package redisscript

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestExplain(t *testing.T) {
	require.NoError(t, explain(nil))
	for want, err := range map[string]error{
		"the server runs no scripts: ERR unknown command 'EVALSHA' (if it is a Sentinel, the URL needs the parameter master_name)": errors.New("ERR unknown command 'EVALSHA', with args beginning with: 'a' 'b'"),
		"no sentinel watches a primary of the name in master_name":                                                                 errors.New("redis: all sentinels specified in configuration are unreachable: redis: nil"),
		"the server has closed the connection (as a port for TLS does, if the URL is not one for TLS)":                             io.EOF,
		"dial: tls: no TLS (the URL is one for TLS, and the port speaks something else)":                                           fmt.Errorf("dial: %w", tls.RecordHeaderError{Msg: "no TLS"}),
		"ERR unknown command 'WAIT', with args":                                                                                    errors.New("ERR unknown command 'WAIT', with args"),
		"LOADING Redis is loading the dataset in memory":                                                                           errors.New("LOADING Redis is loading the dataset in memory"),
		"reading: EOF": fmt.Errorf("reading: %w", io.EOF),
	} {
		got := explain(err)
		require.EqualError(t, got, want)
		assert.ErrorIs(t, got, err)
	}
}
