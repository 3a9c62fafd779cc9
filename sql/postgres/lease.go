package postgres

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// How a hold is extended, reclaimed and given back.
//
// Extend: extend_v1 moves the expiry of all leases that are due, where the row is the owner's and has
// not expired. It skips rows that another transaction has locked. If all were locked, each waits for
// its turn in a request of its own. An owner whose row is not there goes to reclaim.
//
// Reclaim, after a loss of the unlogged table: confirm reads the era. In the era of the grant the hold
// is lost. In a later one, while its grace lasts, the former owner inserts its row again with the same
// token; of two that do, the larger token wins. Only before its own deadline, after a Release
// only to release that row, and not if the hold was ended by force (a logged table says so).
//
// Release: turn_v1 if an ask of this Driver waits for that (ride in claim.go): it enqueues the owner
// that asks, and hands the lock over to the first waiter. free_v1 if nobody waited at the last look.
// release_v1, which settles, if somebody did, or if those did nothing. The row keeps the owner in
// former, so a repeated release succeeds until somebody else releases the name.
//
// Lost replies. Of Extend: the deadline stays, and the next one moves it. Of a reclaim: it may arrive
// late, so reclaimEra keeps its era, and Release makes the row first: the late request then finds
// it released. Of Release: it may have handed the lock over, so leaving forbids to reclaim the row
// after a loss: it may be the next holder's to reclaim. If it is nobody's, the name is free after
// the grace.

func (c *claim) Token() uint64 {
	if g := c.hold.Load(); g != nil {
		return uint64(g.token)
	}
	return 0
}

func (c *claim) Validity() time.Duration { return c.until.Left() }

// Extend extends the hold, or reclaims it if the server has lost the table.
func (c *claim) Extend(ctx context.Context, ttl time.Duration) error {
	return c.of.ExtendAll(ctx, []driver.Claim{c}, ttl)[0]
}

// lostWithTable is the error of a renewal, or a release.
func lostWithTable(err error) error {
	if noTable(err) {
		return driver.ErrLost
	}
	return err
}

var errLocked = errors.New("another transaction has locked the row of the lock")

// ExtendAll extends all leases that are due at the same time in one statement.
func (d *backend) ExtendAll(ctx context.Context, leases []driver.Claim, ttl time.Duration) []error {
	errs := make([]error, len(leases))
	all := func(err error) []error {
		for i := range errs {
			errs[i] = lostWithTable(err)
		}
		return errs
	}
	sent := clock.Now()
	now, err := d.enter(ctx, ttl)
	if err != nil {
		return all(err)
	}
	keys, owners := make([][]byte, len(leases)), make([][]byte, len(leases))
	for i, l := range leases {
		c := l.(*claim)
		keys[i], owners[i] = c.key, c.owner
	}
	rows, err := d.query(ctx, d.spare, d.sql.extend,
		array(pgtype.ByteaArrayOID, keys), array(pgtype.ByteaArrayOID, owners), number(ttl.Microseconds()))
	if err != nil {
		return all(err)
	}
	extended := map[string]bool{}
	for row := range slices.Chunk(rows, 2) {
		extended[string(row[0])] = asTruth(row[1])
	}
	var missing []*claim
	var at []int
	locked := 0
	for i, l := range leases {
		c := l.(*claim)
		is, held := extended[string(c.owner)]
		switch {
		case !held:
			missing, at = append(missing, c), append(at, i)
		case !is:
			errs[i] = errLocked
			locked++
		default:
			c.until.Extend(sent.Add(ttl))
		}
	}
	if locked == len(leases) {
		var all sync.WaitGroup
		for i, l := range leases {
			all.Go(func() { errs[i] = l.(*claim).extendInTurn(ctx, now, ttl) })
		}
		all.Wait()
	}
	for i, err := range d.reclaim(ctx, now, missing, ttl) {
		errs[at[i]] = err
	}
	return errs
}

// extendInTurn waits for its turn to lock the row: where many join the queue of a lock, one after
// the other, an extend finds it locked each time. No version is -1, so that ask grants nothing that
// is not held.
func (c *claim) extendInTurn(ctx context.Context, now era, ttl time.Duration) error {
	d, sent := c.of, clock.Now()
	row, err := d.gives.do(ctx, d.sql.ask, c.key, []byte(c.Name), c.owner, []byte(c.Metadata), number(ttl.Microseconds()),
		number(now.number), number(-1), number(0))
	switch {
	case err != nil:
		return lostWithTable(err)
	case asNumber(row[0]) != isGranted:
		return d.reclaim(ctx, now, []*claim{c}, ttl)[0]
	}
	c.until.Extend(sent.Add(ttl))
	return nil
}

// reclaim has claims whose rows were not found have them again, if the server has lost the table
// since they were granted. The others are lost. Before is the era that was thought to be the
// present one.
func (d *backend) reclaim(ctx context.Context, before era, claims []*claim, ttl time.Duration) []error {
	errs := make([]error, len(claims))
	if len(claims) == 0 {
		return errs
	}
	sent := clock.Now() // before the TTL is registered
	now, err := d.confirm(ctx, before, ttl)
	var again []*claim
	for i, c := range claims {
		g := c.hold.Load()
		switch {
		case err != nil:
			errs[i] = lostWithTable(err)
		case g == nil || g.era == now.number || c.released.Load() || c.Validity() <= 0:
			errs[i] = driver.ErrLost
		default:
			again = append(again, c)
		}
	}
	if len(again) == 0 {
		return errs
	}
	has, err := d.reclaimRows(ctx, now.number, again, ttl)
	for i, c := range claims {
		switch {
		case errs[i] != nil:
		case err != nil:
			errs[i] = lostWithTable(err)
		case !has[string(c.owner)]:
			errs[i] = driver.ErrLost
		default:
			g := *c.hold.Load()
			g.era = now.number
			c.hold.Store(&g)
			c.until.Extend(sent.Add(ttl))
		}
	}
	return errs
}

// confirm returns the era as the server has it now.
func (d *backend) confirm(ctx context.Context, before era, ttl time.Duration) (era, error) {
	d.eras.forget(before.number)
	return d.enter(ctx, ttl)
}

// reclaimRows returns the owners that have their rows.
func (d *backend) reclaimRows(ctx context.Context, era int64, claims []*claim, ttl time.Duration) (has map[string]bool, err error) {
	var keys, names, owners, metadata [][]byte
	var tokens []int64
	for _, c := range claims {
		c.reclaimEra.Store(era)
		keys, names = append(keys, c.key), append(names, []byte(c.Name))
		owners, metadata = append(owners, c.owner), append(metadata, []byte(c.Metadata))
		tokens = append(tokens, c.hold.Load().token)
	}
	reclaimed, err := d.query(ctx, d.spare, d.sql.reclaim,
		array(pgtype.ByteaArrayOID, keys), array(pgtype.ByteaArrayOID, names), array(pgtype.Int8ArrayOID, tokens),
		array(pgtype.ByteaArrayOID, owners), array(pgtype.ByteaArrayOID, metadata), number(ttl.Microseconds()), number(era))
	has = map[string]bool{}
	for _, owner := range reclaimed {
		has[string(owner)] = true
	}
	return has, err
}

// Release ends the hold, or the wait. The lock is handed over to the first of those who wait.
func (c *claim) Release(ctx context.Context) error {
	c.released.Store(true)
	c.of.waiting.leave(c)
	var err error
	if c.known || c.handed.Load() != nil {
		err = lostWithTable(c.giveBack(ctx))
	}
	if err == nil || errors.Is(err, driver.ErrLost) {
		c.end()
	}
	return err
}

func (c *claim) giveBack(ctx context.Context) error {
	d := c.of
	ours, missing, err := c.release(ctx)
	if err == nil && missing && c.hold.Load() != nil {
		// The server may have lost the table. Then the hold lasts, and nobody else gets the name
		// before the grace is over.
		before, _ := d.eras.current(c.TTL)
		now, err := d.confirm(ctx, before, c.TTL)
		switch {
		case err != nil:
			return err
		case now.number == c.reclaimEra.Load():
			// A reclaim of this era may arrive yet, and must find a row then.
		case now.number == c.hold.Load().era || c.Validity() <= 0:
			return driver.ErrLost
		case c.leaving:
			// A release that was not answered may have given the lock to another, whose row it is
			// to reclaim. If it has not, the name is free when the grace is over. It was held until
			// the release, unless it had been ended by force.
			forced, err := d.query(ctx, d.spare, d.sql.forced, c.owner)
			if err == nil && asTruth(forced[0]) {
				return driver.ErrLost
			}
			return err
		}
		has, err := d.reclaimRows(ctx, now.number, []*claim{c}, c.TTL)
		if err == nil && has[string(c.owner)] {
			ours, _, err = c.release(ctx)
		}
		if err != nil {
			return err
		}
	}
	if err == nil && !ours {
		return driver.ErrLost
	}
	return err
}

// release makes the request. The name is missing if it has no row.
func (c *claim) release(ctx context.Context) (ours, missing bool, err error) {
	defer func() { c.leaving = c.leaving || err != nil && !didNothing(err) }()
	d, began := c.of, clock.Now()
	doubt := sent{0, -1}
	if c.doubtful != nil {
		doubt = *c.doubtful
	}
	if c.granted && c.doubtful == nil {
		if r, ok := d.riders.LoadAndDelete(string(c.key)); ok {
			if did, err := c.releaseWith(ctx, r.(*rider)); did || err != nil {
				return did, false, err
			}
		}
		now, _ := d.eras.current(c.TTL)
		if last, _ := d.last(c.key, now); !last.wanted {
			row, err := d.gives.do(ctx, d.sql.free, c.key, c.owner)
			if err != nil || asTruth(row[0]) {
				return err == nil, false, err
			}
		}
		began = clock.Now()
	}
	// An ask that was not answered may arrive late, and have queued it again after the grant.
	waits := !c.granted || c.doubtful != nil
	ask := func(tell bool) ([][]byte, error) {
		return d.gives.do(ctx, d.sql.release, c.key, c.owner, truth(waits), number(doubt.era), number(doubt.version), []byte(c.Name), truth(tell))
	}
	row, err := ask(true)
	if isCode(err, "54000") { // the server's queue of notifications is full, so nothing was done
		row, err = ask(false)
	}
	if err != nil {
		return false, false, err
	}
	if row[1] != nil {
		d.seen.Set(c.key, lastSeen{asNumber(row[4]), asNumber(row[1]), row[2] != nil, d.owns(row[2])})
	}
	d.handOverHere(began, row[2], asNumber(row[3]), asNumber(row[4]))
	return asTruth(row[0]), row[0] == nil, nil
}

// releaseWith releases, and asks for a rider, in one transaction: turn_v1.
func (c *claim) releaseWith(ctx context.Context, r *rider) (did bool, err error) {
	d, began := c.of, clock.Now()
	var a answer
	row, err := d.gives.do(ctx, d.sql.turn, append([][]byte{c.key, c.owner}, r.args...)...)
	switch {
	case err != nil && !didNothing(err):
		close(r.reply)
		return false, err
	case err == nil && row[0] != nil:
		a = asAnswer(row)
	}
	a.missing = noTable(err)
	if era := asNumber(r.args[3]); a.state == isHeld {
		d.seen.Set(c.key, lastSeen{era, a.version, true, d.owns(a.owner)})
		d.handOverHere(began, a.owner, a.token, era)
	}
	r.reply <- a
	return a.state != 0, nil
}
