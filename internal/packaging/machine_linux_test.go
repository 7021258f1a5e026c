package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// machine is a system of its own on this one: systemd as process 1 of a PID namespace, over an overlay of this
// machine's root file system. Packages that are installed in it leave this machine as it is, and
// units are started by systemd with every setting that they have.
type machine struct {
	t    *testing.T
	init int    // process 1 of the machine, by its number here
	root string // its root file system, as seen from here
}

// boot makes the file systems of a machine below $1, in the mount namespace of the shell, and becomes its process 1.
// A machine has the devices of a container, and a bpffs as a host has. Of this machine's services it has
// the journal alone, and it cannot change settings of the kernel.
const boot = `set -eu
d=$1
mount --make-rprivate /
mount -t tmpfs -o mode=0755,size=1G tmpfs $d
mkdir $d/upper $d/work $d/root
mount -t overlay -o lowerdir=/,upperdir=$d/upper,workdir=$d/work overlay $d/root
cd $d/root
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t bpf -o mode=0700 bpf sys/fs/bpf
mount -t tmpfs -o mode=0755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=0755 tmpfs dev
for n in null zero full random urandom tty; do touch dev/$n; mount --bind /dev/$n dev/$n; done
mkdir -m 1777 dev/shm
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mkdir dev/pts && mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts && ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
rm -rf etc/systemd/system usr/local/lib/systemd var/log/journal usr/sbin/policy-rc.d var/lib/man-db/auto-update
mkdir -p etc/systemd/system machine
for u in systemd-sysctl systemd-modules-load systemd-remount-fs systemd-binfmt systemd-repart systemd-sysusers systemd-tmpfiles-setup systemd-tmpfiles-setup-dev systemd-update-utmp \
	systemd-journal-flush systemd-firstboot systemd-random-seed systemd-machine-id-commit systemd-udevd systemd-udev-trigger systemd-networkd apparmor modprobe@; do
	ln -s /dev/null etc/systemd/system/$u.service
done
for u in dev-hugepages dev-mqueue sys-kernel-debug sys-kernel-tracing sys-kernel-config sys-fs-fuse-connections; do ln -s /dev/null etc/systemd/system/$u.mount; done
mount --bind proc/sys proc/sys && mount -o remount,ro,bind proc/sys
printf '[Unit]\nWants=systemd-journald.service\nAllowIsolate=yes\n' >etc/systemd/system/machine.target
mkdir run/upper && mount --bind $d/upper run/upper
pivot_root . machine
umount -l machine
rmdir machine
export container=flowtally
exec /lib/systemd/systemd --unit=machine.target </dev/null
`

// newMachine starts a machine in the network namespace ns.
func newMachine(t *testing.T, ns *lab.Netns) *machine {
	t.Helper()
	need.Root(t)
	need.Tool(t, "unshare", "nsenter", "dpkg", "systemctl")
	dir, err := os.MkdirTemp("/var/tmp", "flowtally-machine-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	group := cgroup(t)
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "sh", "-c", `echo $$ >"$1/cgroup.procs" && exec unshare --mount --pid --fork --kill-child --cgroup --uts --ipc sh -c "$2" boot "$3"`, "sh", group, boot, dir)
	var talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &talk, &talk
	cmd.WaitDelay = 20 * time.Second
	if err := ns.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		cancel() // every process of the machine ends with its first
		<-ended
		removeGroup(t, group)
	})
	m := &machine{t: t}
	lab.Eventually(t, "the start of systemd", func() bool {
		select {
		case <-ended:
			t.Fatalf("the machine ended: %v\n%s", cmd.ProcessState, &talk)
		default:
		}
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
		m.init, _ = strconv.Atoi(strings.TrimSpace(string(children)))
		m.root = fmt.Sprintf("/proc/%d/root", m.init)
		_, err := os.Stat(m.root + "/run/systemd/private")
		return m.init != 0 && err == nil
	})
	return m
}

// cgroup makes a cgroup of version 2 for a machine.
func cgroup(t *testing.T) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); f[2] == "cgroup2" {
			dir := filepath.Join(f[1], lab.Unique("flowtally-"))
			if err := os.Mkdir(dir, 0o755); err != nil {
				need.Missing(t, "cgroup2", err.Error())
			}
			return dir
		}
	}
	need.Missing(t, "cgroup2", "no cgroup2 is mounted")
	return ""
}

// removeGroup removes a cgroup and those below it, which are empty as soon as their processes are gone.
func removeGroup(t *testing.T, dir string) {
	lab.Eventually(t, "the end of the machine's cgroups", func() bool {
		return exec.Command("find", dir, "-depth", "-type", "d", "-delete").Run() == nil
	})
}

// run runs a command in the machine, and returns its output.
func (m *machine) run(args ...string) (string, error) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--target", strconv.Itoa(m.init), "--all", "--wd=/", "--",
		"env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive", "SYSTEMD_PAGER="}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// must runs a command in the machine that has to succeed.
func (m *machine) must(args ...string) string {
	m.t.Helper()
	out, err := m.run(args...)
	if err != nil {
		log, _ := m.run("journalctl", "-n", "60", "--no-pager")
		m.t.Fatalf("%s: %v\n%s\nthe journal:\n%s", strings.Join(args, " "), err, out, log)
	}
	return out
}

// put writes a file of the machine.
func (m *machine) put(path, text string) {
	m.t.Helper()
	if err := os.WriteFile(m.root+path, []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

// has reports whether the machine has the file.
func (m *machine) has(path string) bool {
	_, err := os.Lstat(m.root + path)
	return err == nil
}
