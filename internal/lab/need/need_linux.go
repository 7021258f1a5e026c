package need

import (
	"bytes"
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// capabilities in the order of their numbers (linux/capability.h).
var capabilities = []string{
	"chown", "dac_override", "dac_read_search", "fowner", "fsetid", "kill", "setgid", "setuid",
	"setpcap", "linux_immutable", "net_bind_service", "net_broadcast", "net_admin", "net_raw",
	"ipc_lock", "ipc_owner", "sys_module", "sys_rawio", "sys_chroot", "sys_ptrace", "sys_pacct",
	"sys_admin", "sys_boot", "sys_nice", "sys_resource", "sys_time", "sys_tty_config", "mknod",
	"lease", "audit_write", "audit_control", "setfcap", "mac_override", "mac_admin", "syslog",
	"wake_alarm", "block_suspend", "audit_read", "perfmon", "bpf", "checkpoint_restore",
}

func haveCap(name string) error {
	n := slices.Index(capabilities, name)
	if n < 0 {
		return fmt.Errorf("no capability is called %q", name)
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return fmt.Errorf("reading capabilities: %w", err)
	}
	if data[n/32].Effective&(1<<(n%32)) == 0 {
		return fmt.Errorf("CAP_%s is not in the effective set (run as root)", name)
	}
	return nil
}

// pass loads the smallest program of type typ: it returns verdict.
func pass(typ ebpf.ProgramType, verdict int32) (*ebpf.Program, error) {
	return ebpf.NewProgram(&ebpf.ProgramSpec{
		Type:         typ,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, verdict), asm.Return()},
		License:      "GPL",
	})
}

var haveBPF = sync.OnceValue(func() error {
	if err := rlimit.RemoveMemlock(); err != nil {
		return fmt.Errorf("raising RLIMIT_MEMLOCK: %w", err)
	}
	for _, typ := range []ebpf.ProgramType{ebpf.XDP, ebpf.SchedCLS} {
		p, err := pass(typ, 2)
		if err != nil {
			return fmt.Errorf("loading a program of type %s: %w", typ, err)
		}
		p.Close()
	}
	return nil
})

// throwaway runs fn on a thread in a network namespace of its own; both end
// with it: the thread is never unlocked, so that the runtime discards it.
func throwaway(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("unsharing the network namespace: %w", err)
			return
		}
		done <- fn()
	}()
	return <-done
}

var haveNetns = sync.OnceValue(func() error {
	return throwaway(func() error {
		v := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "need0"}, PeerName: "need1"}
		if err := netlink.LinkAdd(v); err != nil {
			return fmt.Errorf("adding a veth pair: %w", err)
		}
		return nil
	})
})

var haveTCX = sync.OnceValue(func() error {
	if err := haveBPF(); err != nil {
		return err
	}
	return throwaway(func() error {
		p, err := pass(ebpf.SchedCLS, -1)
		if err != nil {
			return fmt.Errorf("loading a tc program: %w", err)
		}
		defer p.Close()
		const loopback = 1 // the first interface of every namespace
		l, err := link.AttachTCX(link.TCXOptions{Interface: loopback, Program: p, Attach: ebpf.AttachTCXEgress})
		if err != nil {
			return fmt.Errorf("attaching by TCX: %w", err)
		}
		return l.Close()
	})
})

var haveRDMACore = sync.OnceValue(func() error {
	list, err := exec.Command("/sbin/ldconfig", "-p").Output()
	if err != nil {
		return fmt.Errorf("listing the shared libraries: %w", err)
	}
	for _, name := range []string{"libibverbs.so.1", "libmlx5.so.1", "libefa.so.1"} {
		if !bytes.Contains(list, []byte("\t"+name+" ")) {
			return fmt.Errorf("%s is not installed: install libibverbs1 and ibverbs-providers (Debian), or libibverbs (Fedora)", name)
		}
	}
	return nil
})

var haveIPsec = sync.OnceValue(func() error {
	return throwaway(func() error {
		if _, err := netlink.XfrmPolicyList(netlink.FAMILY_ALL); err != nil {
			return fmt.Errorf("listing the IPsec policies of a new network namespace: %w", err)
		}
		return nil
	})
})

func bpffs() (string, error) {
	const path = "/sys/fs/bpf"
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return "", fmt.Errorf("looking at %s: %w", path, err)
	}
	if fs.Type == unix.BPF_FS_MAGIC {
		if err := unix.Access(path, unix.W_OK); err != nil {
			return "", fmt.Errorf("writing to %s: %w (run as root)", path, err)
		}
		return path, nil
	}
	return "", fmt.Errorf("no bpffs is mounted at %s: TestMain mounts one by lab.Isolate, which needs root", path)
}
