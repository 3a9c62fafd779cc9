package all_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	_ "github.com/go-locker/locker/all"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/backends"
	"github.com/go-locker/locker/internal/test/fuzzurl"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestAll_importsEveryBackend(t *testing.T) {
	var schemes []string
	for _, b := range backends.Here() {
		schemes = append(schemes, b.Schemes...)
	}
	assert.ElementsMatch(t, schemes, driver.Schemes(), "what all.go imports, and the list in internal/backends")
}

func Example() {
	fmt.Println(driver.Schemes())
	// Output: [etcd etcds mem redigo redigos redis rediss redlock zookeeper zookeepers]
}

// What a program may print of ours does not show the password that Open was given.
func TestOpen_nothingThatIsMadeShowsThePassword(t *testing.T) {
	for _, raw := range []string{
		"redis://u:%s@192.0.2.1", "redis://u:%[1]s@s1,s2?master_name=m&sentinel_password=%[1]s", "redis://u:%s@n1,n2?cluster=true",
		"redigo://u:%s@192.0.2.1", "redigo://u:%[1]s@s1,s2?master_name=m&sentinel_password=%[1]s",
		"redlock://u:%s@h1,h2,h3", "zookeeper://u:%s@192.0.2.1?ttl=20s",
	} {
		c, err := locker.Open(t.Context(), fmt.Sprintf(raw, fuzzurl.Secret))
		require.NoError(t, err, raw)
		m := c.Mutex("x")
		for _, verb := range []string{"%v", "%+v", "%#v"} {
			for _, v := range []any{c, m, c.Guarantees()} {
				assert.False(t, fuzzurl.Shows(fmt.Sprintf(verb, v)), "%s of a %T of %s", verb, v, raw)
			}
		}
		require.NoError(t, c.Close())
	}
}

func TestMain(m *testing.M) { os.Exit(testserver.Tests(m).Run()) }
