package testserver

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// server is a program that tests start, and how to get it.
type server struct{ program, install string }

var (
	redisServer     = server{"redis-server", "run make setup, or install Redis 7 or later (Debian: redis-server, Homebrew: redis)"}
	etcdServer      = server{"etcd", "run make setup, which builds it, or install etcd 3.5 or later"}
	zooKeeperServer = server{"zookeeper-server", "run make setup, which fetches it"}
)

// TellMissing writes to the terminal which servers were missing, and how to get them. `go test` shows nothing of a package
// that passes, skipped tests included, so the message goes past it. For the last package that `go test ./...` lists.
func TellMissing() {
	var b strings.Builder
	for _, s := range []server{redisServer, etcdServer, zooKeeperServer} {
		if _, err := find(s.program); err != nil {
			fmt.Fprintf(&b, "  %-17s %s\n", s.program, s.install)
		}
	}
	if b.Len() == 0 {
		return
	}
	out := pastGoTest()
	if out == nil {
		return
	}
	defer func() { _ = out.Close() }()
	awaitSiblings(time.Minute)
	_, _ = fmt.Fprintf(out, "Skipped: the tests that need these servers, which are not on the PATH:\n%smake test sets them up, and runs those tests.\n", &b)
}

// pastGoTest opens what `go test` writes its errors to, or the terminal. It returns nil where there is neither, or the
// parent is another program.
func pastGoTest() io.WriteCloser {
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", os.Getppid()))
	if err == nil && string(bytes.TrimSpace(comm)) != "go" {
		return nil
	}
	for _, file := range []string{fmt.Sprintf("/proc/%d/fd/2", os.Getppid()), "/dev/tty"} {
		if f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0); err == nil {
			return f
		}
	}
	return nil
}

// awaitSiblings returns when `go test` runs no other package any more, so that what comes next is its last line but one. It
// returns at once where there is no /proc.
func awaitSiblings(limit time.Duration) {
	const look = 100 * time.Millisecond
	for end, quiet := time.Now().Add(limit), 0; quiet < 3 && time.Now().Before(end); time.Sleep(look) {
		if quiet++; siblings() > 0 {
			quiet = 0
		}
	}
}

// siblings counts the other processes of the parent.
func siblings() (n int) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		// pid (name) state parent …; the name may contain anything.
		_, rest, _ := strings.Cut(string(stat), ")")
		fields := strings.Fields(rest[strings.LastIndex(rest, ")")+1:])
		pid := filepath.Base(filepath.Dir(file))
		if len(fields) > 1 && fields[1] == strconv.Itoa(os.Getppid()) && pid != strconv.Itoa(os.Getpid()) {
			n++
		}
	}
	return n
}
