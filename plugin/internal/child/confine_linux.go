package child

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"runtime"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// lasting is the set of capabilities that a plugin keeps, by the numbers of capability.h: links come
// and go as long as it lives. forRDMA is for flows and raw queue pairs of a device.
const (
	lasting uint64 = 1<<unix.CAP_BPF | 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_PERFMON
	forRDMA uint64 = 1 << unix.CAP_NET_RAW
)

// startConfined starts the command with the capabilities that it keeps for good, and no others.
// Linux keeps capabilities, groups and no_new_privs per thread, and a child inherits from the
// thread that forks it. A thread drops its own, starts the child and ends. A process that is
// neither root nor has ambient capabilities gives its child none, so the child keeps the
// capabilities of its file.
func (p *Process) startConfined() error {
	if os.Geteuid() != 0 && !anyAmbient() {
		return p.cmd.Start()
	}
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("opening the network namespace: %w", err)
	}
	defer home.Close()

	keep := lasting
	if p.RDMA {
		keep |= forRDMA
	}
	err = onOwnThread(func() error {
		if err := enter(home); err != nil {
			return err
		}
		if err := confine(keep, p.Groups); err != nil {
			return err
		}
		return p.cmd.Start()
	})
	if err == nil && p.RDMA {
		lockable(p.cmd.Process.Pid)
	}
	return err
}

// onOwnThread runs fn on a thread that ends afterwards. It is not the process's first thread, which cannot
// end and whose state /proc shows as the process's.
func onOwnThread(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			done <- onOwnThread(fn)
			runtime.UnlockOSThread()
			return
		}
		done <- fn()
	}()
	return <-done
}

// enter moves the thread into the network namespace home, unless it is there.
func enter(home *os.File) error {
	var here, there unix.Stat_t
	if err := errors.Join(unix.Stat("/proc/thread-self/ns/net", &here), unix.Fstat(int(home.Fd()), &there)); err != nil {
		return fmt.Errorf("comparing network namespaces: %w", err)
	}
	if here.Ino == there.Ino && here.Dev == there.Dev {
		return nil
	}
	if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering the network namespace: %w", err)
	}
	return nil
}

// confine drops the capabilities of the thread except keep, and adds groups to its groups.
func confine(keep uint64, groups []string) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("reading capabilities: %w", err)
	}

	// Both need capabilities that are dropped below.
	for _, name := range groups {
		if group := groupNumber(name); group > 0 {
			join(group)
		}
	}
	for n := range uintptr(64) {
		if keep&(1<<n) == 0 {
			// EINVAL: no such capability. EPERM: no_new_privs, below, has the same effect.
			_ = unix.Prctl(unix.PR_CAPBSET_DROP, n, 0, 0, 0)
		}
	}

	// From here on, executing a file adds no capability to the thread, even for root.
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("setting no_new_privs: %w", err)
	}

	for i := range data {
		mask := uint32(keep >> (32 * i))
		data[i].Permitted &= mask
		data[i].Effective = data[i].Permitted
		data[i].Inheritable &= mask // the kernel drops the ambient ones too
	}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("dropping capabilities: %w", err)
	}
	return nil
}

// anyAmbient says whether the thread has ambient capabilities, which a program that it executes keeps.
func anyAmbient() bool {
	for n := uintptr(0); ; n++ {
		is, err := unix.PrctlRetInt(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_IS_SET, n, 0, 0)
		if err != nil || is == 1 { // an error: no such capability
			return err == nil
		}
	}
}

// join makes the thread a member of the group, so that the child may give files to the group without
// CAP_CHOWN. A thread without CAP_SETGID keeps its groups, and the child reports the chown that fails.
func join(group int) {
	groups, err := unix.Getgroups()
	if err == nil && !slices.Contains(groups, group) {
		_ = unix.Setgroups(append(groups, group))
	}
}

// groupNumber returns the number of a group that is given by name or number, or 0 if it is unknown. The
// instance reports an unknown group.
func groupNumber(name string) int {
	if g, err := user.LookupGroup(name); err == nil {
		name = g.Gid
	}
	n, err := strconv.ParseUint(name, 10, 31)
	if err != nil {
		return 0
	}
	return int(n)
}

// lockable lifts the process's limit on locked memory, which the queues of a device need: root would have
// CAP_IPC_LOCK. A caller that may not lift the limit raises it to the hard limit.
func lockable(pid int) {
	all := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if unix.Prlimit(pid, unix.RLIMIT_MEMLOCK, &all, nil) == nil {
		return
	}
	var now unix.Rlimit
	if unix.Prlimit(pid, unix.RLIMIT_MEMLOCK, nil, &now) == nil {
		_ = unix.Prlimit(pid, unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: now.Max, Max: now.Max}, nil)
	}
}
