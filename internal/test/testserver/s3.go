package testserver

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// What the stores of S3 and MinIO know their one user by.
const (
	S3AccessKey = "locker-tests"
	S3SecretKey = "a-secret-of-tests"
)

// S3Server is object storage that keeps its data in a folder.
type S3Server struct{ *process }

// S3 starts versitygw and returns when it answers. It has the bucket "bucket".
func S3(t testing.TB) *S3Server {
	t.Helper()
	path := lookup(t, server{"versitygw", "run make setup-nightly, which builds it"})
	s := newS3(t, "versitygw", path, "/")
	s.env = []string{"ROOT_ACCESS_KEY=" + S3AccessKey, "ROOT_SECRET_KEY=" + S3SecretKey}
	s.begin(func(port int) []string {
		return []string{"--keep-alive", "--port", loopback(port), "posix", filepath.Join(s.dataDir(), "buckets")}
	})
	return s
}

// MinIO is S3, of another store. It has no bucket.
func MinIO(t testing.TB) *S3Server {
	t.Helper()
	path := lookup(t, server{"minio", "run make setup-nightly, which builds it"})
	s := newS3(t, "minio", path, "/minio/health/ready")
	s.env = []string{"MINIO_ROOT_USER=" + S3AccessKey, "MINIO_ROOT_PASSWORD=" + S3SecretKey, "MINIO_BROWSER=off", "HOME=" + s.dir}
	s.begin(func(port int) []string {
		return []string{"server", "--quiet", "--address", loopback(port), filepath.Join(s.dataDir(), "drive")}
	})
	return s
}

func newS3(t testing.TB, name, program, path string) *S3Server {
	t.Helper()
	s := &S3Server{process: newProcess(t, name, program, t.TempDir())}
	s.layOut = func() error {
		return errors.Join(os.MkdirAll(s.File(""), 0o700), os.MkdirAll(filepath.Join(s.dataDir(), "drive"), 0o700))
	}
	client := httpClient(nil, time.Second)
	s.isReady = func() error {
		resp, err := client.Get("http://" + s.Addr() + path)
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode >= http.StatusInternalServerError {
			return errors.New("it answers " + resp.Status)
		}
		return nil
	}
	return s
}

// SharedS3 is SharedRedis for S3.
func SharedS3(t testing.TB) *S3Server {
	t.Helper()
	return shared(t, func(t testing.TB, _ ...struct{}) *S3Server { return S3(t) })
}

// URL returns that of the bucket, to which a folder and parameters can be appended.
func (s *S3Server) URL() string { return "s3://bucket?endpoint=http://" + s.Addr() }

// File returns the file that has an object's text, at versitygw.
func (s *S3Server) File(key string) string {
	return filepath.Join(s.dataDir(), "buckets", "bucket", key)
}
