package all_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/go-locker/locker"
	_ "github.com/go-locker/locker/all"
)

func TestAll_registersEveryScheme(t *testing.T) {
	assert.Equal(t, []string{
		"etcd", "etcds", "mem", "redigo", "redigos", "redis", "rediss", "redlock", "zookeeper", "zookeepers",
	}, locker.Schemes())
}
