package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// How requests share round trips.
//
// A lane is one round trip in flight. The first callers get one each, and send alone, on their own
// goroutines. Further requests queue, and a lane that ends takes up to 64 of them into the next round
// trip. So latency is that of a single request while there are few, and the number of round trips is
// bounded while there are many: commits are shared, and two connections are enough.
//
// Each request ends with a Sync: it is a transaction of its own, and one that fails does not undo its
// neighbours. Statements are prepared with their first use on a connection, unless a pooler forbids it.
// Where sessions have another isolation level than READ COMMITTED, BEGIN and COMMIT stand around each.
//
// Outcomes. Not sent (errNotSent): withdrawn from the queue, or no connection; nothing has run. An
// answer of severity ERROR: the server has rolled it back. Anything else: unknown, for this request and
// all behind it in the batch, and the connection is closed. do retries only the first two, see again.
//
// The context of a caller ends a request that is alone, or still queued. In a batch it leaves the
// request in flight: the round trip lasts until the latest deadline, for the replies of the others.

const (
	mostLanes    = 2  // round trips in flight at once
	mostRequests = 64 // in one round trip
	patience     = 10 * time.Second
)

// pipeline sends the requests of many goroutines in few round trips: requests that arrive while all
// lanes are in flight share the next round trip. Each request is a transaction of its own.
type pipeline struct {
	driver *backend
	pool   func() *pgxpool.Pool

	mu      sync.Mutex
	queue   []*request
	lanes   int // round trips in flight
	running sync.WaitGroup
	closed  context.Context
	close   context.CancelFunc
}

// request is one statement. The values of its result are those of all rows, one after another.
type request struct {
	statement

	args   [][]byte
	until  time.Time
	values [][]byte
	err    error
	done   chan struct{}
}

// errNotSent is matched by the errors of requests that were not sent.
var errNotSent = errors.New("not sent")

func newPipeline(d *backend, pool func() *pgxpool.Pool) *pipeline {
	p := &pipeline{driver: d, pool: pool}
	p.closed, p.close = context.WithCancel(context.Background())
	return p
}

// do sends a request, and retries it if it certainly changed nothing and a retry may succeed: see
// again.
func (p *pipeline) do(ctx context.Context, s statement, args ...[]byte) ([][]byte, error) {
	for tries := 1; ; tries++ {
		r, alone := p.add(ctx, s, args)
		if r == nil {
			return nil, errNotSent
		}
		if alone {
			p.roundTrip(ctx, []*request{r})
			p.mu.Lock()
			p.leave()
			p.mu.Unlock()
		}
		select {
		case <-r.done:
		default:
			select {
			case <-r.done:
			case <-ctx.Done():
				if p.withdraw(r) {
					return nil, fmt.Errorf("%w: %w", errNotSent, ctx.Err())
				}
				return nil, ctx.Err()
			}
		}
		switch {
		case r.err == nil:
			return r.values, nil
		case ctx.Err() != nil: // the cause of the failure, whatever the error says
			return nil, errors.Join(ctx.Err(), r.err)
		case !p.driver.again(ctx, s, r.err, tries):
			return nil, r.err
		}
	}
}

// leave gives up the caller's lane, or passes it to a goroutine that sends the queued requests. The
// caller holds p.mu.
func (p *pipeline) leave() {
	switch {
	case p.closed.Err() != nil:
		for _, r := range p.queue {
			r.err = errNotSent
			close(r.done)
		}
		p.queue = nil
		fallthrough
	case len(p.queue) == 0:
		p.lanes--
	default:
		p.running.Go(p.lane)
	}
}

// add queues a request, unless the pipeline is closed. If a lane is free the caller gets it instead,
// for this request alone, which saves a switch to another goroutine.
func (p *pipeline) add(ctx context.Context, s statement, args [][]byte) (r *request, alone bool) {
	r = &request{statement: s, args: args, done: make(chan struct{})}
	var ok bool
	if r.until, ok = ctx.Deadline(); !ok {
		r.until = time.Now().Add(patience)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed.Err() != nil {
		return nil, false
	}
	if p.lanes < mostLanes {
		p.lanes++
		return r, true
	}
	p.queue = append(p.queue, r)
	return r, false
}

// withdraw removes a request from the queue, and reports whether it was still there: then it is
// never sent.
func (p *pipeline) withdraw(r *request) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.queue, r)
	if i >= 0 {
		p.queue = slices.Delete(p.queue, i, i+1)
	}
	return i >= 0
}

// end closes the pipeline, and waits for its lanes.
func (p *pipeline) end() {
	p.mu.Lock()
	p.close()
	p.mu.Unlock()
	p.running.Wait()
}

// lane sends batches of requests until the queue is empty.
func (p *pipeline) lane() {
	for {
		p.mu.Lock()
		n := min(len(p.queue), mostRequests)
		batch := slices.Clone(p.queue[:n])
		p.queue = slices.Delete(p.queue, 0, n)
		if n == 0 {
			p.lanes--
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		var until time.Time
		for _, r := range batch {
			if r.until.After(until) {
				until = r.until
			}
		}
		ctx, cancel := context.WithDeadline(p.closed, until)
		p.roundTrip(ctx, batch)
		cancel()
	}
}

// roundTrip sends a batch, and sets the result of each of its requests.
func (p *pipeline) roundTrip(ctx context.Context, batch []*request) {
	answered, began := 0, time.Now()
	conn, err := p.pool().Acquire(ctx)
	fail := func(err error) {
		p.driver.ifSilent(ctx, began, conn, err)
		for _, r := range batch[answered:] {
			r.err = err
			close(r.done)
		}
	}
	if err != nil {
		fail(fmt.Errorf("%w: %w", errNotSent, err))
		return
	}
	defer conn.Release()
	described, prepare := p.descriptions(conn.Conn(), batch)
	tracer := conn.Conn().Config().Tracer
	out := conn.Conn().PgConn().StartPipeline(ctx)
	defer func() { _ = out.Close() }()
	strict := p.driver.strict.Load()
	extra := func(text string) {
		if strict {
			out.SendQueryParams(text, nil, nil, nil, nil)
		}
	}
	for i, r := range batch {
		extra("BEGIN ISOLATION LEVEL READ COMMITTED")
		if prepare[i] {
			out.SendPrepare(r.name, r.text, nil)
		}
		if tracer != nil {
			tracer.TraceQueryEnd(tracer.TraceQueryStart(ctx, conn.Conn(), pgx.TraceQueryStartData{SQL: r.text}), conn.Conn(), pgx.TraceQueryEndData{})
		}
		formats := slices.Repeat([]int16{pgx.BinaryFormatCode}, len(r.args))
		if d := described[r.name]; d != nil {
			out.SendQueryStatement(d, r.args, formats, binaryResult)
		} else if prepare[i] {
			out.SendQueryPrepared(r.name, r.args, formats, binaryResult)
		} else {
			out.SendQueryParams(r.text, r.args, nil, formats, binaryResult)
		}
		extra("COMMIT")
		out.SendPipelineSync()
		if strict {
			extra("ROLLBACK") // if the request has failed
			out.SendPipelineSync()
		}
	}
	if err := out.Flush(); err != nil {
		fail(err)
		return
	}
	stale := false
	for i, r := range batch {
		var prepared func(*pgconn.StatementDescription)
		if prepare[i] {
			prepared = func(d *pgconn.StatementDescription) { described[r.name] = d }
		}
		r.values, r.err = receive(out, r.name, strict, prepared)
		if r.err != nil && !answeredBy(r.err) {
			fail(r.err)
			return
		}
		stale = stale || wrongServer(r.err)
		answered++
		close(r.done)
	}
	if stale {
		_ = out.Close()
		closeConn(conn.Conn())
	}
}

var binaryResult = []int16{pgx.BinaryFormatCode}

// descriptions returns the statements that the connection has prepared, and which of the batch are
// to be prepared with their first use: those that have names, unless no statement is prepared.
func (p *pipeline) descriptions(conn *pgx.Conn, batch []*request) (described map[string]*pgconn.StatementDescription, prepare []bool) {
	prepare = make([]bool, len(batch))
	if p.driver.unnamed.Load() {
		return nil, prepare
	}
	const ours = "github.com/go-locker/locker/sql/postgres"
	data := conn.PgConn().CustomData()
	described, _ = data[ours].(map[string]*pgconn.StatementDescription)
	if described == nil {
		described = map[string]*pgconn.StatementDescription{}
		data[ours] = described
	}
	for i, r := range batch {
		prepare[i] = r.name != "" && described[r.name] == nil && !slices.ContainsFunc(batch[:i], func(other *request) bool { return other.name == r.name })
	}
	return described, prepare
}

// receive reads the replies to one request and to the messages sent with it. If those prepare a
// statement, prepared is called with it.
func receive(out *pgconn.Pipeline, name string, strict bool, prepared func(*pgconn.StatementDescription)) (values [][]byte, err error) {
	if strict {
		_, err = result(out) // BEGIN
	}
	if err == nil && prepared != nil {
		var answer any
		answer, err = out.GetResults()
		if d, ok := answer.(*pgconn.StatementDescription); ok && err == nil {
			d.Name = name
			prepared(d)
		}
	}
	if err == nil {
		values, err = result(out)
	}
	if err == nil && strict {
		_, err = result(out) // COMMIT
	}
	if err != nil && !answeredBy(err) {
		return nil, err
	}
	_, otherErr := out.GetResults() // Sync
	if strict && otherErr == nil {
		if _, otherErr = result(out); otherErr == nil { // ROLLBACK
			_, otherErr = out.GetResults()
		}
	}
	if otherErr != nil {
		return nil, otherErr
	}
	return values, err
}

// result reads the answer to one statement.
func result(out *pgconn.Pipeline) (values [][]byte, err error) {
	answer, err := out.GetResults()
	rows, ok := answer.(*pgconn.ResultReader)
	if err != nil || !ok {
		return nil, err
	}
	for rows.NextRow() {
		for _, value := range rows.Values() {
			values = append(values, slices.Clone(value))
		}
	}
	_, err = rows.Close()
	return values, err
}

// answeredBy reports whether err is what the server has answered to a statement, after which the
// connection goes on.
func answeredBy(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.SeverityUnlocalized == "ERROR"
}

// Values of the binary format, each encoder beside its decoder. NULL decodes to zero.

func number(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func asNumber(value []byte) int64 {
	if len(value) != 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(value))
}

func truth(b bool) []byte {
	if b {
		return []byte{1}
	}
	return []byte{0}
}

func asTruth(value []byte) bool { return len(value) == 1 && value[0] == 1 }

// array is for elements of a type whose arrays have this OID.
func array(of uint32, elements any) []byte {
	value, _ := pgtype.NewMap().Encode(of, pgx.BinaryFormatCode, elements, nil) // of a type that it knows
	return value
}

func asArray(value []byte) (elements [][]byte) {
	_ = pgtype.NewMap().Scan(pgtype.ByteaArrayOID, pgx.BinaryFormatCode, value, &elements)
	return elements
}
