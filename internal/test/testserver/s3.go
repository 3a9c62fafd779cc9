package testserver

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// What the stores of S3 and MinIO know their one user by.
const (
	S3AccessKey = "locker-tests"
	S3SecretKey = "a-secret-of-tests"
)

// S3Server is object storage that keeps its data in a folder.
type S3Server struct {
	*process

	root    string // of the data
	port    int
	command func(port int) []string
	path    string // that answers when it is ready
}

// S3 starts versitygw and returns when it answers. It has the bucket "bucket".
func S3(t testing.TB) *S3Server {
	t.Helper()
	path := lookup(t, server{"versitygw", "run make setup-nightly, which builds it"})
	s := &S3Server{process: newProcess(t, "versitygw", path), path: "/"}
	s.root = filepath.Join(s.dir, "data")
	s.env = []string{"ROOT_ACCESS_KEY=" + S3AccessKey, "ROOT_SECRET_KEY=" + S3SecretKey}
	s.command = func(port int) []string {
		return []string{"--keep-alive", "--port", loopback(port), "posix", filepath.Join(s.root, "buckets")}
	}
	s.layOut()
	s.begin()
	return s
}

// MinIO is S3, of another store. It has no bucket.
func MinIO(t testing.TB) *S3Server {
	t.Helper()
	path := lookup(t, server{"minio", "run make setup-nightly, which builds it"})
	s := &S3Server{process: newProcess(t, "minio", path), path: "/minio/health/ready"}
	s.root = filepath.Join(s.dir, "data")
	s.env = []string{"MINIO_ROOT_USER=" + S3AccessKey, "MINIO_ROOT_PASSWORD=" + S3SecretKey, "MINIO_BROWSER=off", "HOME=" + s.dir}
	s.command = func(port int) []string {
		return []string{"server", "--quiet", "--address", loopback(port), filepath.Join(s.root, "drive")}
	}
	s.layOut()
	s.begin()
	return s
}

// SharedS3 is SharedRedis for S3.
func SharedS3(t testing.TB) *S3Server {
	t.Helper()
	return shared(t, &sharedS3, func(t testing.TB) *S3Server { return S3(t) })
}

var sharedS3 *S3Server

// layOut makes the folders that the data begin with.
func (s *S3Server) layOut() {
	s.t.Helper()
	for _, dir := range []string{"buckets/bucket", "drive"} {
		if err := os.MkdirAll(filepath.Join(s.root, dir), 0o700); err != nil {
			s.t.Fatalf("testserver: %v", err)
		}
	}
}

func (s *S3Server) begin() {
	s.t.Helper()
	withPort(s.t, s.name, func(port int) error {
		s.port, s.args = port, s.command(port)
		return s.start(s.ready)
	})
}

func (s *S3Server) ready() error {
	// No connection is kept that a test which looks for leaks would find.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	resp, err := client.Get("http://" + s.Addr() + s.path)
	if err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusInternalServerError {
		err = &startError{reason: "it answers " + strconv.Itoa(resp.StatusCode)}
	}
	_ = resp.Body.Close()
	return err
}

// Addr returns the "127.0.0.1:port" for clients.
func (s *S3Server) Addr() string { return loopback(s.port) }

// URL returns that of the bucket, to which a folder and parameters can be appended.
func (s *S3Server) URL() string { return "s3://bucket?endpoint=http://" + s.Addr() }

// File returns the file that has an object's text, at versitygw.
func (s *S3Server) File(key string) string { return filepath.Join(s.root, "buckets", "bucket", key) }

// Restart kills the server if it runs and starts it again with its data. It returns when it
// answers.
func (s *S3Server) Restart() {
	s.t.Helper()
	s.kill()
	if err := s.start(s.ready); err != nil {
		s.t.Fatalf("testserver: %s did not start again on port %d: %v", s.name, s.port, err)
	}
}

// Wipe removes the data of a server that was killed.
func (s *S3Server) Wipe() {
	s.t.Helper()
	s.wipe(s.root)
	s.layOut()
}
