package testserver

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Stop freezes the server, those of its processes that have connections too. It needs /proc.
func (s *PostgresServer) Stop() {
	s.t.Helper()
	s.process.Stop() // first: from here on there are no more
	for _, child := range s.children() {
		s.signalChild(child, sigStop)
		s.awaitChild(child, "stopped", isStopped)
	}
}

// Continue undoes Stop.
func (s *PostgresServer) Continue() {
	s.t.Helper()
	for _, child := range s.children() {
		s.signalChild(child, sigCont)
	}
	s.process.Continue()
}

// Kill ends the server as a crash would, and waits until all of it is gone. What was committed is on disk. It does nothing
// if the server is not running.
func (s *PostgresServer) Kill() {
	s.t.Helper()
	if !s.running() {
		return
	}
	s.process.Stop()
	children := s.children()
	s.process.Kill()
	for _, child := range children {
		s.signalChild(child, os.Kill)
	}
	for _, child := range children {
		s.awaitChild(child, "ended", func(int) bool { return false })
	}
}

// Restart starts the server again, on the same port and with its data, and returns when it answers.
func (s *PostgresServer) Restart() {
	s.t.Helper()
	if err := s.start(s.ready); err != nil {
		s.t.Fatalf("testserver: %s: restart: %v", s.name, err)
	}
}

// Wipe makes the server, which must not run, forget everything.
func (s *PostgresServer) Wipe() {
	s.t.Helper()
	s.wipe(s.data())
	if err := os.Remove(s.data()); err != nil { // initdb makes it, as the user whose it has to be
		s.t.Fatalf("testserver: %s: %v", s.name, err)
	}
	s.initialise()
}

// useClock lets the server's user read what root has made.
func (s *PostgresServer) useClock() {
	s.t.Helper()
	s.process.useClock()
	for _, name := range []string{s.clockFile, filepath.Join(s.dir, "clock.so")} {
		if err := os.Chmod(name, 0o644); err != nil {
			s.t.Fatalf("testserver: %s: %v", s.name, err)
		}
	}
}

func (s *PostgresServer) children() []int {
	s.t.Helper()
	list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", s.cmd.Process.Pid))
	if err != nil {
		s.t.Fatalf("testserver: the processes of %s: %v", s.name, err)
	}
	var pids []int
	for field := range strings.FieldsSeq(string(list)) {
		if pid, err := strconv.Atoi(field); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// signalChild takes it that a child which cannot be signalled has ended.
func (s *PostgresServer) signalChild(pid int, sig os.Signal) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Signal(sig)
		_ = p.Release()
	}
}

// awaitChild waits until what is so of the child, or it has ended.
func (s *PostgresServer) awaitChild(pid int, what string, is func(pid int) bool) {
	s.t.Helper()
	for deadline := time.Now().Add(goneTimeout); !is(pid); time.Sleep(pollInterval) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || bytes.Contains(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" Z ")) {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("testserver: process %d of %s has not %s", pid, s.name, what)
		}
	}
}
