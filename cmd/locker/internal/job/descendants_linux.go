package job

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// descendants are the processes that the command has started, directly or not, in whatever group and session.
// timeout(1) makes a group of its own, and a shell with job control one for each job.
type descendants struct {
	leader int         // the command, which leads a group
	adopts bool        // every child of ours is a descendant of the command
	before map[id]bool // children that are not the command's: a shell had them, and became locker

	mu     sync.Mutex
	listed map[id]bool // seen last
	refuse map[id]bool // of another user: they cannot be signalled
	unseen int         // how often in a row we had a child that is not in /proc
}

// id identifies a process: its number alone may be another's later.
type id struct {
	pid     int
	started string // in ticks since the machine was started
}

// kin is a process as /proc shows it.
type kin struct {
	id
	parent, group int
	zombie        bool // all its threads have ended, and its parent has not waited for it
}

// adopt makes us the parent of descendants whose own parents end. Call it before the command is started. If a shell has become
// locker and has left us children, their orphans would be ours too: then we leave all orphans to init.
func adopt() *descendants {
	d := &descendants{before: map[id]bool{}, refuse: map[id]bool{}}
	all, ok := processes()
	for _, p := range all {
		if p.parent == os.Getpid() && !p.zombie {
			d.before[p.id] = true
		}
	}
	d.adopts = ok && len(d.before) == 0 && unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == nil
	return d
}

// signal sends n to those of all that are not in the command's group. It returns EPERM if one was another user's. The signal to a
// group skips such members without an error, so they are checked one by one.
func (d *descendants) signal(all []kin, n syscall.Signal) (err error) {
	for _, p := range all {
		own := n
		if p.group == d.leader {
			own = 0
		}
		if errors.Is(p.signal(own), fs.ErrPermission) {
			err = syscall.EPERM
			d.mu.Lock()
			d.refuse[p.id] = true
			d.mu.Unlock()
		}
	}
	return err
}

// remain reports whether a descendant runs that can be signalled. /proc may show a new process late, if its parent ends meanwhile.
// So after the command is reaped we ask the kernel: a descendant runs only if we have a child. A child that /proc never shows is
// another user's: /proc may be mounted so.
func (d *descendants) remain(reaped bool) bool {
	running := d.list()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range running {
		if !d.refuse[p.id] {
			d.unseen = 0
			return true
		}
	}
	if !reaped || !d.adopts || len(d.refuse) > 0 || !haveChild() {
		return false
	}
	d.unseen++
	return d.unseen < 100
}

// haveChild reports whether a child of ours runs. It reaps those that have ended.
func haveChild() bool {
	for {
		switch pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); {
		case pid == 0 && err == nil:
			return true
		case err != nil && !errors.Is(err, unix.EINTR): // ECHILD
			return false
		}
	}
}

// AdoptOrphans makes us the parent of what programs leave running. end kills those, and says which
// they were.
func AdoptOrphans() (end func() string) { return adopt().end }

// end kills those that run on for a while, and says which they were.
func (d *descendants) end() string {
	began := time.Now()
	var names []string
	for time.Since(began) < 5*time.Second {
		running := d.list()
		if len(running) == 0 {
			break
		}
		if time.Since(began) > 500*time.Millisecond {
			for _, p := range running {
				if name := fmt.Sprintf("%s (%d)", p.name(), p.pid); !slices.Contains(names, name) {
					names = append(names, name)
				}
				_ = p.signal(unix.SIGKILL)
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	return strings.Join(names, ", ")
}

// name is that of the program which it runs.
func (p kin) name() string {
	name, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/comm")
	if err != nil {
		return "a process"
	}
	return strings.ToValidUTF8(strings.TrimSpace(string(name)), "?")
}

// list returns the running descendants without the command itself, and reaps orphans that have ended. It also returns those of
// the last call that still run under another parent.
func (d *descendants) list() (running []kin) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all, _ := processes()
	children, next := map[int][]kin{}, []kin{}
	for _, p := range all {
		children[p.parent] = append(children[p.parent], p)
		if p.parent == os.Getpid() || d.listed[p.id] {
			next = append(next, p)
		}
	}
	listed := map[id]bool{}
	for len(next) > 0 {
		p := next[0]
		next = next[1:]
		if d.before[p.id] || listed[p.id] {
			continue
		}
		next = append(next, children[p.pid]...)
		switch {
		case p.pid == d.leader:
		case !p.zombie:
			listed[p.id] = true
			running = append(running, p)
		case p.parent == os.Getpid():
			_, _ = unix.Wait4(p.pid, nil, unix.WNOHANG, nil)
		}
	}
	d.listed = listed
	return running
}

// signal sends n to the process, and to no other that has got its number: it opens a handle before it checks that the process is
// still the same. Kernels before 5.3 have no handles; there another process can be hit if it gets the number just then.
func (p kin) signal(n syscall.Signal) error {
	handle, err := os.FindProcess(p.pid)
	if err != nil {
		return err
	}
	defer func() { _ = handle.Release() }()
	if now, err := look(strconv.Itoa(p.pid)); err != nil || now.id != p.id {
		return os.ErrProcessDone
	}
	return handle.Signal(n)
}

// processes returns all that can be seen, and false if that is none: where /proc is not mounted, or shows another PID namespace.
func processes() (all []kin, ok bool) {
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return nil, false
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, false
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	for _, name := range slices.Backward(names) { // the youngest first: they may end soon
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		if p, err := look(name); err == nil { // otherwise it has ended
			all = append(all, p)
		}
	}
	return all, err == nil
}

// Positions of the fields in /proc/PID/stat after the name, which may have any characters.
const (
	statState   = 0
	statParent  = 1
	statGroup   = 2
	statThreads = 17
	statStarted = 19
)

func look(pid string) (p kin, err error) {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return p, err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) <= statStarted {
		return p, errors.New("/proc/" + pid + "/stat is not as proc(5) has it")
	}
	p.started = fields[statStarted]
	dead := fields[statState] == "Z" || fields[statState] == "X"
	p.zombie = dead && (fields[statThreads] == "0" || fields[statThreads] == "1")
	var errs [3]error
	p.pid, errs[0] = strconv.Atoi(pid)
	p.parent, errs[1] = strconv.Atoi(fields[statParent])
	p.group, errs[2] = strconv.Atoi(fields[statGroup])
	return p, errors.Join(errs[:]...)
}

// A command that has ended keeps its number until it is reaped.
const numberIsKept = true

// awaitEnd returns when the command has ended, and does not reap it: until it is reaped, no other process or group gets its
// number.
func (g *group) awaitEnd() {
	for {
		switch err := unix.Waitid(unix.P_PID, g.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); {
		case err == nil:
			return
		case !errors.Is(err, unix.EINTR):
			_ = g.Reap()
			return
		}
	}
}

// attributes makes the command die with us, however we end: nobody would end it when the lock
// expires. This does not reach the processes that the command has started, and does nothing while
// we are stopped (SIGSTOP).
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// stopped reports whether a child has been stopped since the last call.
func stopped(pid int) bool {
	var event unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &event, unix.WSTOPPED|unix.WNOHANG, nil)
	return err == nil && event.Code == cldStopped
}

// cldStopped is CLD_STOPPED of siginfo_t.
const cldStopped = 5
