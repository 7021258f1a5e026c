package confine

import (
	"errors"
	"fmt"
	"os"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// The rights for each list of Files. ruleOf removes those that only directories can have.
const (
	read  landlock.AccessFSSet = ll.AccessFSReadFile | ll.AccessFSReadDir | ll.AccessFSExecute
	write landlock.AccessFSSet = ll.AccessFSReadFile | ll.AccessFSReadDir | ll.AccessFSWriteFile | ll.AccessFSTruncate |
		ll.AccessFSMakeDir | ll.AccessFSMakeReg | ll.AccessFSMakeSock | ll.AccessFSRemoveDir | ll.AccessFSRemoveFile
	all                          = write | ll.AccessFSExecute | ll.AccessFSMakeSym | ll.AccessFSMakeFifo | ll.AccessFSIoctlDev
	device  landlock.AccessFSSet = ll.AccessFSReadFile | ll.AccessFSReadDir | ll.AccessFSWriteFile | ll.AccessFSIoctlDev
	makeDir landlock.AccessFSSet = ll.AccessFSReadDir | ll.AccessFSMakeDir | ll.AccessFSRemoveDir

	onFiles landlock.AccessFSSet = ll.AccessFSReadFile | ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSExecute | ll.AccessFSIoctlDev
)

// Process confines this process to f. It also sets no_new_privs, so that the process cannot gain privileges by executing a
// file. It fails with ErrUnsupported if the kernel cannot confine; no_new_privs is set even then.
func Process(f Files) error {
	// Landlock would set it too, but may be missing.
	if err := ll.AllThreadsPrctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("setting no_new_privs: %w", err)
	}
	switch _, err := ll.LandlockGetABIVersion(); {
	case errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("%w: the kernel was built without Landlock (CONFIG_SECURITY_LANDLOCK)", ErrUnsupported)
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("%w: Landlock is off in the kernel: the list lsm= of its command line lacks landlock", ErrUnsupported)
	case err != nil:
		return fmt.Errorf("%w: asking the kernel for Landlock: %w", ErrUnsupported, err)
	}
	var rules []landlock.Rule
	for _, kind := range []struct {
		paths  []string
		rights landlock.AccessFSSet
	}{{f.Read, read}, {f.Write, write}, {f.Devices, device}, {f.Make, makeDir}, {f.All, all}} {
		for _, path := range kind.paths {
			if rule, ok := ruleOf(path, kind.rights); ok {
				rules = append(rules, rule)
			}
		}
	}
	// An older Landlock enforces as much as it can.
	if err := landlock.V11.BestEffort().Restrict(rules...); err != nil {
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return nil
}

// ruleOf returns the rule for a path. ok is false if the path does not exist.
func ruleOf(path string, rights landlock.AccessFSSet) (rule landlock.Rule, ok bool) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, false
	}
	if !info.IsDir() {
		rights &= onFiles
	}
	return landlock.PathAccess(rights, path).IgnoreIfMissing(), rights != 0
}

// onBPFFS reports whether a path is on a bpffs.
func onBPFFS(path string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && fs.Type == unix.BPF_FS_MAGIC
}
