package main

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	"github.com/caddyserver/certmagic"
	cron "github.com/go-co-op/gocron/v2"
	"github.com/pressly/goose/v3"
	"go.uber.org/zap"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence/sqlfence"
	lockercertmagic "github.com/go-locker/locker/integrations/certmagic"
	lockergocron "github.com/go-locker/locker/integrations/gocron"
	lockergoose "github.com/go-locker/locker/integrations/goose"
)

//go:embed migrations/*.sql
var embedded embed.FS

// service is one process.
type service struct {
	config

	lasts time.Duration // how long it serves; 0: until ctx ends
	log   *log.Logger
	db    *sql.DB
}

// run serves until ctx ends. What can be refused without a request comes first.
func (s *service) run(ctx context.Context) error {
	// The fences rely on tokens that rise.
	client, err := locker.Open(ctx, s.Lock, locker.WithPrefix("service"), locker.Require(locker.Fencing))
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	defer client.Close()
	jobs, err := lockergocron.NewLocker(client, s.Report.Minimum, func(err error) { s.log.Print(err) })
	if err != nil {
		return fmt.Errorf("report: minimum: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer listener.Close()
	if s.db, err = openSQLite(s.Database); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	defer s.db.Close()

	if err := s.migrate(ctx, client.Mutex("migrate")); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	certificates, stop, err := s.obtain(ctx, client)
	defer stop()
	if err != nil {
		return fmt.Errorf("certificate of %s: %w", s.Domain, err)
	}
	scheduler, err := s.schedule(jobs)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	err = s.answer(ctx, listener, certificates)
	return cmp.Or(err, scheduler.Shutdown()) // waits for the job, whose context ends
}

// openSQLite opens a database, and makes it if it is missing. A process that finds it locked waits.
func openSQLite(file string) (*sql.DB, error) {
	dsn := url.URL{Scheme: "file", OmitHost: true, Path: file, RawQuery: "_pragma=busy_timeout(10000)"}
	return sql.Open("sqlite", dsn.String())
}

// migrate has one process apply the migrations. The others wait. The Store refuses one that loses the lock halfway.
func (s *service) migrate(ctx context.Context, lock *locker.Mutex) error {
	migrations, err := fs.Sub(embedded, "migrations")
	if err != nil {
		return err
	}
	store, err := lockergoose.NewStore(lock, goose.DialectSQLite3, goose.DefaultTablename)
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectCustom, s.db, migrations, goose.WithStore(store), goose.WithLocker(lockergoose.New(lock)))
	if err != nil {
		return err
	}
	ctx, cancel := lockergoose.Context(ctx) // ends if the lock is lost
	defer cancel()
	applied, err := provider.Up(ctx)
	for _, m := range applied {
		s.log.Print("applied ", filepath.Base(m.Source.Path))
	}
	return err
}

// obtain has one process obtain the certificate, and renew it in time. The others find it in the storage. Call stop also after an error.
func (s *service) obtain(ctx context.Context, client *locker.Client) (magic *certmagic.Config, stop func(), err error) {
	logger := certmagic.Default.Logger.WithOptions(zap.IncreaseLevel(zap.WarnLevel))
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return magic, nil },
		Logger:           logger,
	})
	magic = certmagic.New(cache, certmagic.Config{
		Storage:           lockercertmagic.New(&certmagic.FileStorage{Path: s.Certificates}, client),
		Issuers:           []certmagic.Issuer{testIssuer{s.log}},
		OCSP:              certmagic.OCSPConfig{DisableStapling: true}, // a test issuer has no server to ask
		DefaultServerName: s.Domain,
		Logger:            logger,
	})
	err = magic.ManageSync(ctx, []string{s.Domain})
	return magic, cache.Stop, err
}

// schedule has one process run the job of each tick. Ticks are multiples of the interval, so that they are the same for all.
func (s *service) schedule(jobs *lockergocron.Locker) (cron.Scheduler, error) {
	scheduler, err := cron.NewScheduler(cron.WithDistributedLocker(jobs))
	if err != nil {
		return nil, err
	}
	start := cron.WithStartDateTimePast(time.Now().Truncate(s.Report.Every))
	_, err = scheduler.NewJob(cron.DurationJob(s.Report.Every), jobs.Task(s.report), cron.WithName("report"), cron.WithStartAt(start))
	if err != nil {
		return nil, err
	}
	scheduler.Start()
	return scheduler, nil
}

// report is the job. Its ctx ends if the lock is lost.
func (s *service) report(ctx context.Context, token uint64) error {
	tick := time.Now().Round(s.Report.Every).UTC().Format(time.RFC3339)
	err := s.write(ctx, tick, token)
	if err != nil {
		s.log.Printf("report of %s: %v", tick, err) // gocron drops it
		return err
	}
	s.log.Printf("report of %s, with token %d", tick, token)
	return nil
}

// write writes a row, unless the lock was lost and a later holder has written. A process that is stopped before it asks for the lock
// can run a tick again. Where that would be wrong, make the tick UNIQUE.
func (s *service) write(ctx context.Context, tick string, token uint64) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()              // does nothing after Commit
	fence := sqlfence.Table{Dialect: sqlfence.SQLite} // made by the Store of migrate
	if err := fence.Admit(ctx, tx, "reports", token); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO reports (tick, token) VALUES (?, ?)", tick, token); err != nil {
		return err
	}
	return tx.Commit()
}

// answer answers requests.
func (s *service) answer(ctx context.Context, l net.Listener, certificates *certmagic.Config) error {
	if s.lasts > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.lasts)
		defer cancel()
	}
	s.log.Printf("serves https://%s", l.Addr())
	server := &http.Server{Handler: s, TLSConfig: certificates.TLSConfig(), ReadHeaderTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ServeTLS(l, "", ""); ctx.Err() == nil {
		return err
	}
	return nil
}

// ServeHTTP implements [http.Handler].
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var reports int
	if err := s.db.QueryRowContext(r.Context(), "SELECT count(*) FROM reports").Scan(&reports); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprintln(w, "reports:", reports)
}
