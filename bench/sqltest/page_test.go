package sqltest_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/fence/sqlfence"
)

var sqlBlock = regexp.MustCompile("(?ms)^```sql\n(.*?;)\n```$")

// The SQL of docs/fencing.md does what the page says of it.
func TestPage_sql(t *testing.T) {
	text, err := os.ReadFile("../../docs/fencing.md")
	require.NoError(t, err)
	var statements []string
	for _, block := range sqlBlock.FindAllStringSubmatch(string(text), -1) {
		statements = append(statements, block[1])
	}
	require.Len(t, statements, 3, "a column, an update and an insert")
	const token = "1795555380981738"
	run(t, func(t *testing.T, d *database) {
		db := d.open(t, d.plain())
		rows := func(statement string) int64 {
			t.Helper()
			result, err := db.ExecContext(t.Context(), statement)
			require.NoError(t, err, statement)
			n, err := result.RowsAffected()
			require.NoError(t, err)
			return n
		}
		rows(`DROP TABLE IF EXISTS orders`)
		rows(`CREATE TABLE orders (id INTEGER PRIMARY KEY, state VARCHAR(100))`)
		rows(`INSERT INTO orders VALUES (42, 'new')`)
		rows(statements[0])
		writes := statements[1:]
		if d.dialect == sqlfence.MySQL {
			writes = statements[1:2] // for the other the page has another way
		}
		for _, write := range writes {
			require.Contains(t, write, token)
			rows(`UPDATE orders SET token = 0, state = 'new'`)
			assert.EqualValues(t, 1, rows(write), "the first write with a token")
			later := strings.ReplaceAll(write, token, "1795555380981739")
			assert.EqualValues(t, 1, rows(later), "a later holder's")
			assert.EqualValues(t, 0, rows(write), "a stale one")
			assert.EqualValues(t, 1, rows(`DELETE FROM orders WHERE token = 1795555380981739 AND state = 'paid'`), "the later token is kept")
			if strings.HasPrefix(write, "INSERT") {
				assert.EqualValues(t, 1, rows(write), "a row that was missing")
			}
			rows(`DELETE FROM orders`)
			rows(`INSERT INTO orders (id, state) VALUES (42, 'new')`)
		}
	})
}
