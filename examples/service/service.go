// Service is a program whose operator chooses the backend of its locks, in a YAML file. Its
// processes do each thing once: one migrates the database, one runs the job of each tick, and one
// obtains the certificate of the domain.
//
//	go run -C examples/service .                 # in memory, with a new database, for three seconds
//	go run -C examples/service . service.yaml    # until Ctrl-C; in several terminals
//
// What to copy is service.go: the adapters to goose, gocron and certmagic, over one Client.
package main

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"database/sql"
	"embed"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/caddyserver/certmagic"
	cron "github.com/go-co-op/gocron/v2"
	"github.com/pressly/goose/v3"
	"go.uber.org/zap"
	"go.yaml.in/yaml/v4"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/go-locker/locker"
	_ "github.com/go-locker/locker/all" // so that the URL may name any backend
	"github.com/go-locker/locker/fence/sqlfence"
	lockercertmagic "github.com/go-locker/locker/integrations/certmagic"
	lockergocron "github.com/go-locker/locker/integrations/gocron"
	lockergoose "github.com/go-locker/locker/integrations/goose"
	_ "github.com/go-locker/locker/kubernetes" // a module of its own: 6 MB of client-go
	_ "github.com/go-locker/locker/s3"         // the same: 10 MB of Amazon's SDK
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

// migrate has one process apply the migrations. The others wait. The Store refuses one that loses
// the lock halfway.
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

// obtain has one process obtain the certificate, and renew it in time. The others find it in the
// storage. Call stop also after an error.
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

// schedule has one process run the job of each tick. Ticks are multiples of the interval, so that
// they are the same for all.
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
	done, err := s.write(ctx, tick, token)
	switch {
	case err != nil:
		s.log.Printf("report of %s: %v", tick, err) // gocron drops it
	case done:
		s.log.Printf("report of %s is done already", tick)
	default:
		s.log.Printf("report of %s, with token %d", tick, token)
	}
	return err
}

// write writes a row, unless the lock was lost and a later holder has written, or the tick has its
// row. A process that was stopped before it asked for the lock comes to a tick again, and so does
// one whose clock is late by more than the minimum.
func (s *service) write(ctx context.Context, tick string, token uint64) (done bool, err error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }()              // does nothing after Commit
	fence := sqlfence.Table{Dialect: sqlfence.SQLite} // made by the Store of migrate
	if err := fence.Admit(ctx, tx, "reports", token); err != nil {
		return false, err
	}
	result, err := tx.ExecContext(ctx, "INSERT INTO reports (tick, token) VALUES (?, ?) ON CONFLICT DO NOTHING", tick, token)
	if err != nil {
		return false, err
	}
	rows, err := result.RowsAffected()
	if err != nil {
		return false, err
	}
	return rows == 0, tx.Commit()
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

// config is what the operator writes: service.yaml says more.
type config struct {
	Lock         string `yaml:"lock"`         // URL of the backend
	Database     string `yaml:"database"`     // file
	Certificates string `yaml:"certificates"` // folder
	Domain       string `yaml:"domain"`
	Listen       string `yaml:"listen"`
	Report       job    `yaml:"report"`
}

type job struct {
	Every   time.Duration `yaml:"every"`
	Minimum time.Duration `yaml:"minimum"` // hold of its lock
}

// load reads a file. A setting that nobody knows is a mistake. So is one that is missing: a process
// with locks or a database of its own does all again.
func load(file string) (c config, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return c, err
	}
	err = yaml.Load(text, &c, yaml.WithKnownFields())
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return c, fmt.Errorf("%s: %w", file, err)
	}
	return c, nil
}

// check returns all that is wrong at once. The URL, and the minimum, which the backend has to
// honour, are for others to judge.
func (c config) check() error {
	var errs []error
	for _, s := range []struct{ key, value string }{
		{"lock", c.Lock}, {"database", c.Database}, {"certificates", c.Certificates}, {"domain", c.Domain}, {"listen", c.Listen},
	} {
		if s.value == "" {
			errs = append(errs, fmt.Errorf("%s: is missing", s.key))
		}
	}
	if c.Domain != "" && !certmagic.SubjectQualifiesForCert(c.Domain) {
		errs = append(errs, fmt.Errorf("domain: %q: there is no certificate for such a name", c.Domain))
	}
	if c.Report.Minimum <= 0 || c.Report.Minimum >= c.Report.Every {
		errs = append(errs, fmt.Errorf("report: minimum: %v: has to be above 0, and below every, which is %v", c.Report.Minimum, c.Report.Every))
	}
	return errors.Join(errs...)
}

// testIssuer signs certificates itself, which no browser trusts, and asks nobody. A program that
// others trust has a certmagic.ACMEIssuer in its place.
type testIssuer struct{ log *log.Logger }

// IssuerKey implements certmagic.Issuer.
func (testIssuer) IssuerKey() string { return "test" }

// Issue implements certmagic.Issuer.
func (i testIssuer) Issue(_ context.Context, csr *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	const lasts, bits = 90 * 24 * time.Hour, 64
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), bits))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	certificate := &x509.Certificate{SerialNumber: serial, DNSNames: csr.DNSNames, NotBefore: now, NotAfter: now.Add(lasts)}
	authority := &x509.Certificate{Subject: pkix.Name{CommonName: "a test: trust nothing of it"}}
	der, err := x509.CreateCertificate(rand.Reader, certificate, authority, csr.PublicKey, key)
	if err != nil {
		return nil, err
	}
	i.log.Printf("issued a certificate for %s", csr.DNSNames)
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

func main() {
	// The first Ctrl-C, or a supervisor's SIGTERM, ends ctx: what is under way is rolled back, and
	// locks are released. A second one ends the process.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	var err error
	switch files := os.Args[1:]; len(files) {
	case 0:
		err = demo(ctx)
	case 1:
		var c config
		if c, err = load(files[0]); err == nil {
			err = newService(c).run(ctx)
		}
	default:
		err = fmt.Errorf("usage: service [file.yaml]   (default: in memory, for %v)", demonstration)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const demonstration = 3 * time.Second

func demo(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "service")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s := newService(config{
		Lock: "mem://service", Database: filepath.Join(dir, "service.sqlite"), Certificates: filepath.Join(dir, "certificates"),
		Domain: "shop.example", Listen: "localhost:0", Report: job{Every: time.Second, Minimum: 500 * time.Millisecond},
	})
	s.lasts = demonstration
	return s.run(ctx)
}

func newService(c config) *service {
	return &service{config: c, log: log.New(os.Stdout, fmt.Sprintf("%d  ", os.Getpid()), 0)}
}
