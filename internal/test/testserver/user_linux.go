package testserver

import (
	"os"
	"os/exec"
	"syscall"
)

// notAsRoot has a program that refuses to run as root take us for somebody else: in a user namespace, where root has another number
// and still may what it may; or, where that is not allowed, as the user nobody, who gets dir, but has to be able to see the program.
func notAsRoot(sys *syscall.SysProcAttr, dir string) error {
	const somebody, nobody = 1000, 65534
	namespace := func(sys *syscall.SysProcAttr) {
		sys.Cloneflags = syscall.CLONE_NEWUSER
		sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: somebody, HostID: 0, Size: 1}}
		sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: somebody, HostID: 0, Size: 1}}
	}
	try := exec.Command("/bin/true")
	try.SysProcAttr = &syscall.SysProcAttr{}
	namespace(try.SysProcAttr)
	if try.Run() == nil {
		namespace(sys)
		return nil
	}
	sys.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	return os.Chown(dir, nobody, nobody)
}
