package all_test

import (
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	_ "github.com/go-locker/locker/all"
	"github.com/go-locker/locker/internal/backends"
	"github.com/go-locker/locker/internal/test/testserver"
)

// page is docs/urls.md.
type page struct {
	schemes []string
	// rows are the parameters, each with what its cell has to say for a backend.
	rows map[string]map[string]string
}

const unknown = "–"

func readPage(t *testing.T) page {
	t.Helper()
	text, err := os.ReadFile("../docs/urls.md")
	require.NoError(t, err)
	p := page{rows: map[string]map[string]string{}}
	var header []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			header = nil
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case header == nil:
			header = cells
		case !strings.HasPrefix(cells[0], "`"): // the line below the header
		case header[0] == "scheme":
			for s := range strings.SplitSeq(cells[0], ",") {
				p.schemes = append(p.schemes, strings.Trim(s, " `"))
			}
		default:
			require.Len(t, cells, len(header), line)
			require.NotContains(t, p.rows, cells[0], "given twice")
			row := map[string]string{}
			for backend := range aURL { // a column that a table does not have is full of dashes
				row[backend] = unknown
			}
			for i, cell := range cells[1:] {
				require.NotEmpty(t, cell, line)
				if header[i+1] != "default" {
					row[header[i+1]] = cell
					continue
				}
				for backend := range aURL {
					row[backend] = cell
				}
			}
			p.rows[strings.Trim(cells[0], "`")] = row
		}
	}
	return p
}

func TestURLsPage_hasEveryScheme(t *testing.T) {
	p := readPage(t)
	var schemes []string
	for _, b := range backends.All {
		if b.Module == "" {
			schemes = append(schemes, b.Schemes...)
			continue
		}
		own, err := os.ReadFile("../docs/backends/" + b.Package + ".md")
		require.NoError(t, err)
		assert.Contains(t, string(own), "| "+strings.Join(b.Schemes, ", ")+" |")
	}
	assert.ElementsMatch(t, schemes, p.schemes)
}

// secure has the URL be one of TLS.
func secure(raw string) string {
	scheme, rest, _ := strings.Cut(raw, "://")
	switch scheme {
	case "mem":
		return raw
	case "redlock":
		return with(raw, "driver=rediss")
	default:
		return scheme + "s://" + rest
	}
}

// samples has for each parameter a query that it is in, with those that it goes with.
func samples(t *testing.T) map[string]string {
	t.Helper()
	files := testserver.NewTLSProxy(t, "127.0.0.1:1") // nobody connects to it
	pair := "tls_cert=" + url.QueryEscape(files.CertFile) + "&tls_key=" + url.QueryEscape(files.KeyFile)
	return map[string]string{
		"ttl":               "ttl=20s",
		"renew":             "renew=false",
		"prefix":            "prefix=shop",
		"require":           "require=exclusive",
		"token_base":        "token_base=1000",
		"metadata":          "metadata=shop-3",
		"backoff":           "backoff=20ms,1s",
		"dial_timeout":      "dial_timeout=1s",
		"read_timeout":      "read_timeout=2s",
		"write_timeout":     "write_timeout=2s",
		"node_timeout":      "node_timeout=100ms",
		"pool_size":         "pool_size=3",
		"client_name":       "client_name=shop-3",
		"socket":            "socket=/run/redis.sock",
		"master_name":       "master_name=m",
		"sentinel_username": "master_name=m&sentinel_username=u&sentinel_password=p",
		"sentinel_password": "master_name=m&sentinel_password=p",
		"cluster":           "cluster=true",
		"replicas":          "replicas=1",
		"replica_timeout":   "replicas=1&replica_timeout=50ms",
		"driver":            "driver=redigo",
		"keepalive_time":    "keepalive_time=1m",
		"keepalive_timeout": "keepalive_timeout=1s",
		"tick":              "tick=1s",
		"acl":               "acl=world",
		"tls_ca":            "tls_ca=" + url.QueryEscape(files.CAFile),
		"tls_cert":          pair,
		"tls_key":           pair,
		"tls_server_name":   "tls_server_name=h.example",
		"tls_skip_verify":   "tls_skip_verify=true",
	}
}

// opens has the URL of a backend with a sample of the parameter opened.
func opens(t *testing.T, backend, parameter, sample string) error {
	t.Helper()
	raw := aURL[backend]
	switch {
	case parameter == "socket" && backend != "redlock":
		raw, _, _ = strings.Cut(raw, "192.0.2.1") // in place of a host
	case parameter == "ttl" && backend == "zookeeper":
		raw, _, _ = strings.Cut(raw, "?")
	case strings.HasPrefix(parameter, "tls_"):
		raw = secure(raw)
	}
	c, err := locker.Open(t.Context(), with(raw, sample))
	if err == nil {
		err = c.Close()
	}
	return err
}

func TestURLsPage_isWhatTheCodeTakes(t *testing.T) {
	p, queries := readPage(t), samples(t)
	assert.ElementsMatch(t, slices.Collect(maps.Keys(queries)), slices.Collect(maps.Keys(p.rows)), "each row has a sample, and each sample a row")
	for parameter, row := range p.rows {
		for backend := range aURL {
			sample := queries[parameter]
			if row[backend] == unknown { // without those that it would go with
				all, err := url.ParseQuery(sample)
				require.NoError(t, err)
				sample = url.Values{parameter: all[parameter]}.Encode()
			}
			err := opens(t, backend, parameter, sample)
			if row[backend] != unknown {
				// Not to promise something is not to refuse the parameter.
				assert.True(t, err == nil || parameter == "require" && strings.Contains(err.Error(), "promised"),
					"the page has %q take %s: %v", backend, parameter, err)
				continue
			}
			require.Error(t, err, "the page says that %q does not take %s", backend, parameter)
			named := strings.Contains(err.Error(), "parameter ") && strings.Contains(err.Error(), parameter)
			assert.True(t, named || backend == "redlock" && strings.Contains(err.Error(), "master_name and cluster are not for redlock"),
				"%s %s: %v", backend, parameter, err)
		}
	}
}

// What Open lists when it refuses a parameter is what the code asks for.
func TestURLsPage_hasEveryParameter(t *testing.T) {
	p := readPage(t)
	for backend, raw := range aURL {
		for _, raw := range []string{raw, secure(raw)} {
			_, err := locker.Open(t.Context(), with(raw, "no_such=1"))
			require.ErrorContains(t, err, `"no_such"`)
			_, known, ok := strings.Cut(err.Error(), "known are ")
			require.True(t, ok, err.Error())
			for parameter := range strings.SplitSeq(known, ", ") {
				require.Contains(t, p.rows, parameter, "taken by %s", raw)
				refused := backend == "redlock" && p.rows[parameter]["redis"] != unknown // its nodes ask for more than they may have
				assert.True(t, refused || p.rows[parameter][backend] != unknown, "%s takes %s, the page says that it does not", raw, parameter)
			}
		}
	}
}

// Those at the end of the page are for reading, and for copying.
func TestURLsPage_examplesAreValid(t *testing.T) {
	text, err := os.ReadFile("../docs/urls.md")
	require.NoError(t, err)
	_, examples, ok := strings.Cut(string(text), "\n## Examples\n")
	require.True(t, ok)
	for raw := range strings.FieldsSeq(examples) {
		c, err := locker.Open(t.Context(), raw)
		if err == nil {
			require.NoError(t, c.Close())
			continue
		}
		require.ErrorIs(t, err, os.ErrNotExist, "%s: what it lacks are certificates", raw)
	}
}
