package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/internal/test/testwait"
)

// Many write at once, each under tokens that rise, and some that are long stale. What was written is in the order of the
// writes, and so are its tokens.
func TestHistory_hasNoStaleWriteAfterANewerOne(t *testing.T) {
	const writers, writes = 8, 12
	for name, by := range map[string]way{"Exec": {write: recordByExec}, "Admit": {write: recordByAdmit}} {
		t.Run(name, func(t *testing.T) {
			runLevels(t, func(t *testing.T, d *database, l level, db *sql.DB) {
				d.exec(t, db, `INSERT INTO accounts (id, state) VALUES (1, 'new')`)
				var tokens, refusals atomic.Int64
				var done []<-chan error
				for range writers {
					done = append(done, testwait.Go(func() error {
						for range writes {
							token := tokens.Add(1)
							token -= min(token-1, rand.Int64N(3)) // who has been paused for two of them
							err := d.record(t.Context(), l, db, by, uint64(token))
							if errors.Is(err, fence.ErrStale) {
								refusals.Add(1)
							} else if err != nil {
								return err
							}
						}
						return nil
					}))
				}
				for _, done := range done {
					require.NoError(t, patience.Result(t, done))
				}
				recorded := history(t, db)
				assert.Len(t, recorded, writers*writes-int(refusals.Load()), "each write is either there or was refused")
				assert.NotEmpty(t, recorded)
				assert.IsNonDecreasing(t, recorded)
				t.Logf("%d writes, %d refused", len(recorded), refusals.Load())
			})
		})
	}
}

// record tries until the database says something else than to come again.
func (d *database) record(ctx context.Context, l level, db *sql.DB, by way, token uint64) error {
	for {
		tx, err := l.tryBegin(ctx, db)
		if err == nil {
			err = finish(tx, by.write(ctx, d, tx, "x", token))
		}
		if err == nil || !d.comeAgain(err) {
			return err
		}
	}
}

func recordByExec(ctx context.Context, d *database, tx *sql.Tx, state string, token uint64) error {
	query, args := d.update(state, token)
	if err := d.column().Exec(ctx, tx, 1, token, query, args...); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, d.sql(`INSERT INTO history (n, token) SELECT version, token FROM accounts WHERE id = ?`), 1)
	return err
}

// The next number is one that another could take as well if it were not for Admit, and no two rows can have the same.
func recordByAdmit(ctx context.Context, d *database, tx *sql.Tx, _ string, token uint64) error {
	if err := d.table().Admit(ctx, tx, "history", token); err != nil {
		return err
	}
	var last int64
	if err := tx.QueryRowContext(ctx, `SELECT coalesce(max(n), 0) FROM history`).Scan(&last); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, d.sql(`INSERT INTO history (n, token) VALUES (?, ?)`), last+1, token)
	return err
}

func history(t *testing.T, db *sql.DB) (tokens []uint64) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT token FROM history ORDER BY n`)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var token uint64
		require.NoError(t, rows.Scan(&token))
		tokens = append(tokens, token)
	}
	require.NoError(t, rows.Err())
	return tokens
}
