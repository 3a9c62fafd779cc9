package all_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

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

// What Open lists when it refuses a parameter is what the code asks for.
func TestURLsPage_isWhatTheCodeTakes(t *testing.T) {
	p := readPage(t)
	for backend, raw := range aURL {
		var known, said []string
		for _, raw := range []string{raw, secure(raw)} {
			_, err := locker.Open(t.Context(), with(raw, "no_such=1"))
			require.ErrorContains(t, err, `"no_such"`)
			_, list, ok := strings.Cut(err.Error(), "known are ")
			require.True(t, ok, err.Error())
			known = append(known, strings.Split(list, ", ")...)
		}
		if backend == "redlock" { // its nodes ask for what they may not have
			for _, of := range []string{"socket", "master_name", "sentinel_username", "sentinel_password", "cluster"} {
				require.Contains(t, known, of)
				_, err := locker.Open(t.Context(), with(raw, of+"=true"))
				require.Error(t, err, of)
				known = slices.DeleteFunc(known, func(parameter string) bool { return parameter == of })
			}
		}
		for parameter, row := range p.rows {
			if row[backend] != unknown {
				said = append(said, parameter)
			}
		}
		slices.Sort(known)
		assert.ElementsMatch(t, slices.Compact(known), said, backend)
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

// aURL is one of each backend, at servers that nobody asks for anything.
var aURL = func() map[string]string {
	urls := map[string]string{}
	for _, b := range backends.Here() {
		urls[b.Schemes[0]] = b.Example
	}
	return urls
}()

func with(raw, parameters string) string {
	if strings.Contains(raw, "?") {
		return raw + "&" + parameters
	}
	return raw + "?" + parameters
}

// docs/urls.md says of each backend which guarantees a program may demand.
func TestRequire_theTableOfURLsIsWhatIsPromised(t *testing.T) {
	all := []locker.Guarantee{
		locker.Exclusive, locker.Failover, locker.Fencing, locker.FencingDurable, locker.Ordered, locker.Woken,
	}
	text, err := os.ReadFile("../docs/urls.md")
	require.NoError(t, err)
	for _, b := range backends.Here() {
		client, err := locker.Open(t.Context(), b.Example)
		require.NoError(t, err, b.Package)
		title, _, _ := strings.Cut(b.Title, " ")
		row := "| " + title + " |"
		for _, g := range all {
			word := map[locker.Level]string{
				locker.LevelNo: "no", locker.LevelConditional: "if", locker.LevelYes: "yes",
			}[client.Guarantees()[g].Level]
			row += " " + word + " |"
		}
		assert.Contains(t, string(text), "\n"+row+"\n")
		require.NoError(t, client.Close())
	}
}

// The error of a URL that does not suit the servers says what of it is wrong.
func TestOpen_errorsSayWhatOfTheURLIsWrong(t *testing.T) {
	t.Parallel()
	plain, secure, sentinels := testserver.Redis(t), testserver.Redis(t, testserver.RedisTLS()), testserver.Sentinel(t)
	for _, scheme := range []string{"redis", "redigo"} {
		for url, want := range map[string]string{
			"://" + sentinels.Addrs()[0]:                        `if it is a Sentinel, the URL needs the parameter master_name`,
			"://" + sentinels.Addrs()[0] + "?master_name=wrong": `no sentinel (knows|watches) `,
			"://" + secure.Addr():                               `as a port for TLS does|reset by peer`,
			"s://" + plain.Addr() + "?dial_timeout=500ms":       `is it a port for TLS\?`,
		} {
			c, err := locker.Open(t.Context(), scheme+url, locker.WithTTL(time.Minute))
			require.NoError(t, err)
			assert.Regexp(t, want, c.Mutex("x").TryLock(t.Context()).Error(), scheme+url)
			require.NoError(t, c.Close())
		}
	}
}
