package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/frame"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// staged returns a directory that make install has filled for a format, with the programs of make build.
func staged(t *testing.T, format string) string {
	t.Helper()
	need.Tool(t, "make")
	bin := os.Getenv("FLOWTALLY_BIN")
	if bin == "" {
		need.Missing(t, "FLOWTALLY_BIN", "it names the directory of the programs that make build made")
	}
	stage := filepath.Join(t.TempDir(), "stage")
	libraries := map[string]string{"deb": "/usr/lib/x86_64-linux-gnu", "rpm": "/usr/lib64"}[format]
	cmd := exec.Command("sh", "-c", `umask 077; exec make -s install "$@"`, "sh", "BIN="+bin, "PREFIX=/usr", "LIBDIR="+libraries, "DESTDIR="+stage)
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make install: %v\n%s", err, out)
	}
	return stage
}

// small puts the library, which is an ELF file too, in the place of the programs, for tests that do not run them:
// most of the time of making a package is the compression of the programs.
func small(t *testing.T, stage string) string {
	t.Helper()
	libraries, err := filepath.Glob(filepath.Join(stage, "usr", "lib*", "*", "libflowtally.so.0.*"))
	more, _ := filepath.Glob(filepath.Join(stage, "usr", "lib64", "libflowtally.so.0.*"))
	if libraries = append(libraries, more...); err != nil || len(libraries) != 1 {
		t.Fatalf("%v, %v", libraries, err)
	}
	for _, name := range []string{"flowtally", "flowtally-plugin"} {
		command(t, "cp", libraries[0], filepath.Join(stage, "usr", "bin", name))
	}
	return stage
}

// build makes a package of a stage.
func build(t *testing.T, format, stage, version string) string {
	t.Helper()
	path, err := Build(Options{Format: format, Stage: stage, Scripts: "scripts", Debian: "debian", To: t.TempDir(), Version: version, Arch: "amd64", Time: time.Unix(1e9, 0).UTC()})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// host is a machine with a wire, on which the .deb is installed.
type host struct {
	*machine
	wire *lab.Wire
	sent uint64
}

func newHost(t *testing.T) *host {
	t.Helper()
	need.Netns(t)
	need.BPF(t)
	wire, err := lab.NewWire(lab.WireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { wire.Close() })
	return &host{machine: newMachine(t, wire.Near.NS), wire: wire}
}

// install installs a package, whose file is copied into the machine.
func (h *host) install(deb string) (string, error) {
	h.t.Helper()
	data, err := os.ReadFile(deb)
	if err != nil {
		h.t.Fatal(err)
	}
	path := "/tmp/" + filepath.Base(deb)
	h.put(path, string(data))
	defer os.Remove(h.root + path)
	return h.run("dpkg", "--force-unsafe-io", "--install", path)
}

// installed installs a package, which has to succeed.
func (h *host) installed(deb string) {
	h.t.Helper()
	if out, err := h.install(deb); err != nil {
		h.t.Fatalf("dpkg --install: %v\n%s", err, out)
	}
}

// configure writes a configuration that counts on the wire, with settings and flows besides.
func (h *host) configure(settings, flows string) {
	h.t.Helper()
	h.put("/etc/flowtally.yaml", "interfaces: [{name: "+h.wire.Near.Name+", mode: native}]\n"+settings+"flows:\n  - {name: udp, match: udp dport 7000}\n"+flows)
	h.must("flowtally", "check", "--config", "/etc/flowtally.yaml")
}

// count sends n packets and waits until the counter has every packet sent so far, and no other. The total
// has no discontinuity unless broken is set.
func (h *host) count(n uint64, broken bool) {
	h.t.Helper()
	h.sent += send(h.t, h.wire, n)
	h.counted(broken)
}

// send sends n packets of UDP to port 7000, and returns how many the kernel took.
func send(t *testing.T, wire *lab.Wire, n uint64) uint64 {
	t.Helper()
	data := frame.Sized(100, frame.Eth{Dst: [6]byte{2, 0, 0, 0, 0, 1}, Src: [6]byte{2, 0, 0, 0, 0, 2}},
		frame.IPv4{Src: frame.Addr("192.0.2.1"), Dst: frame.Addr("192.0.2.2")}, frame.UDP{Src: 1, Dst: 7000})
	s, err := wire.Far.NewSender([]lab.Stream{{Name: "udp", Frames: [][]byte{data}}}, lab.SenderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := errors.Join(s.Run(t.Context(), n), s.Drain(t.Context())); err != nil {
		t.Fatal(err)
	}
	return s.Sent()[0].Packets
}

// counted waits until the counter has every packet sent so far.
func (h *host) counted(broken bool) {
	h.t.Helper()
	var out string
	var got struct {
		Counters []struct{ Packets, Discontinuities *uint64 }
	}
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var err error
		if out, err = h.run("flowtally", "get", "-o", "json", "udp"); err != nil || json.Unmarshal([]byte(out), &got) != nil || len(got.Counters) != 1 {
			continue
		}
		c := got.Counters[0]
		if c.Packets == nil || *c.Packets < h.sent {
			continue
		}
		if *c.Packets != h.sent || c.Discontinuities == nil || (*c.Discontinuities > 0) != broken {
			break
		}
		return
	}
	h.t.Fatalf("sent %d packets, discontinuity %v; flowtally get prints\n%s\n%s", h.sent, broken, out, h.must("journalctl", "-n", "40", "--no-pager"))
}

// attached reports whether an XDP program is on the wire.
func (h *host) attached() bool {
	return strings.Contains(h.must("ip", "link", "show", h.wire.Near.Name), "xdp")
}

// state is a property of the unit.
func (h *host) state(property string) string {
	h.t.Helper()
	return strings.TrimSpace(h.must("systemctl", "show", "--value", "--property", property, "flowtally.service"))
}

// left lists the files, the users and the programs of the machine that installing could leave. Directories of this
// machine's own are not among them: copying a file up copies the directories above it.
func (h *host) left() []string {
	h.t.Helper()
	list := func(dir string, own ...string) (paths []string) {
		for line := range strings.Lines(h.must("find", dir, "-xdev", "-printf", "%y %P\n")) {
			kind, path, _ := strings.Cut(strings.TrimSpace(line), " ")
			if kind == "d" && dir == "/run/upper" {
				if info, err := os.Stat("/" + path); err == nil && info.IsDir() {
					continue
				}
			}
			if !slices.ContainsFunc(own, func(prefix string) bool { return strings.HasPrefix(path, prefix) }) {
				paths = append(paths, filepath.Join(dir, path))
			}
		}
		return paths
	}
	// The package manager's own database and log, and the caches that it renews.
	all := list("/run/upper", "var/lib/dpkg/status", "var/lib/dpkg/lock", "var/lib/dpkg/triggers/", "var/lib/dpkg/available", "var/log/", "var/cache/ldconfig", "etc/ld.so.cache", "var/lib/systemd/", "var/lib/dpkg/info/format")
	all = append(all, list("/run", "upper", "systemd/", "log", "udev/", "user/", "dbus/", "lock")...)
	all = append(all, list("/sys/fs/bpf")...)
	all = append(all, list("/dev/shm")...)
	all = append(all, list("/tmp", "systemd-private-")...)
	users, groups := h.must("cat", "/etc/passwd"), h.must("cat", "/etc/group")
	all = append(all, fmt.Sprintf("%d bytes of users and groups", len(users)+len(groups)), fmt.Sprintf("XDP %v", h.attached()))
	slices.Sort(all)
	return all
}

// The .deb is installed, started, reloaded, upgraded, removed and purged by dpkg and systemd, and real packets are
// counted in between. The numbers are exact, also over the upgrade, and nothing is left at the end.
func TestPackageCountsExactlyUntilItsPurge(t *testing.T) {
	need.Tool(t, "make", "dpkg", "ip")
	stage := staged(t, "deb")
	first, second := build(t, "deb", stage, "1.0.0"), build(t, "deb", stage, "1.0.1~rc1")
	h := newHost(t)
	before := h.left()

	h.installed(first)
	if enabled, _ := h.run("systemctl", "is-enabled", "flowtally"); strings.TrimSpace(enabled) != "disabled" || h.state("ActiveState") != "inactive" {
		t.Errorf("after the installation the unit is %s, %s: an installation starts nothing", strings.TrimSpace(enabled), h.state("ActiveState"))
	}
	for _, command := range []string{"flowtally version", "flowtally-plugin --version", "man --where flowtally-flows-add flowtally.yaml flowtally-plugin",
		"pkg-config --exists --print-errors flowtally", "test -e /usr/share/bash-completion/completions/flowtally"} {
		h.must(strings.Fields(command)...)
	}
	if cache := h.must("ldconfig", "-p"); !strings.Contains(cache, "libflowtally.so.0") {
		t.Error("the linker does not find libflowtally.so.0")
	}

	h.configure("xdp: {keep_pins: true}\n", "")
	h.must("systemctl", "enable", "--now", "flowtally")
	h.count(1000, false)
	if out := h.must("flowtally", "flows", "list", "-o", "json"); strings.Contains(out, "asking the kernel for Landlock") {
		t.Errorf("the filter of the unit refuses what confines the plugin:\n%s", out)
	}
	h.configure("xdp: {keep_pins: true}\n", "  - {name: rest, match: any, priority: 100}\n")
	h.must("systemctl", "reload", "flowtally")
	if out := h.must("flowtally", "flows", "list"); !strings.Contains(out, "rest") {
		t.Errorf("after the reload:\n%s", out)
	}
	h.count(1000, false)
	h.put("/etc/flowtally.yaml", "interfaces: [lo\n")
	if out, err := h.run("systemctl", "reload", "flowtally"); err == nil || h.state("ActiveState") != "active" {
		t.Errorf("a reload with a mistake in the file: %v, %s\n%s", err, h.state("ActiveState"), out)
	}
	h.configure("xdp: {keep_pins: true}\n", "  - {name: rest, match: any, priority: 100}\n")
	h.count(1000, false)

	process := h.state("MainPID")
	h.installed(second)
	if now := h.state("MainPID"); h.state("ActiveState") != "active" || now == process {
		t.Errorf("after the upgrade the unit is %s, with process %s: an upgrade restarts an instance that runs", h.state("ActiveState"), now)
	}
	if version := h.must("dpkg-query", "--show", "--showformat=${Version}", "flowtally"); version != "1.0.1~rc1-1" {
		t.Errorf("version %s after the upgrade", version)
	}
	h.count(1000, false)

	// An instance that is not the unit's: it runs on, and keeps its files, whatever becomes of the package.
	h.put("/tmp/other.yaml", "instance: other\ninterfaces: [lo]\nflows: [{name: all, match: any}]\n")
	h.must("systemd-run", "--unit=other", "--property=Type=notify", "flowtally", "run", "--config", "/tmp/other.yaml")
	others := []string{"/run/flowtally/other.mirror", "/run/flowtally-control/other.sock", "/sys/fs/bpf/flowtally/other"}
	keeps := func(when string) {
		t.Helper()
		for _, path := range others {
			if !h.has(path) {
				t.Errorf("after the %s another instance has lost %s", when, path)
			}
		}
		if active, _ := h.run("systemctl", "is-active", "other"); strings.TrimSpace(active) != "active" {
			t.Errorf("after the %s another instance is %s", when, active)
		}
	}
	keeps("start")

	h.must("dpkg", "--remove", "flowtally")
	keeps("removal")
	if !h.has("/etc/flowtally.yaml") || h.has("/usr/bin/flowtally") || h.has("/sys/fs/bpf/flowtally/default") || h.attached() {
		t.Errorf("after the removal: configuration %v, program %v, pins %v, attached %v", h.has("/etc/flowtally.yaml"), h.has("/usr/bin/flowtally"), h.has("/sys/fs/bpf/flowtally/default"), h.attached())
	}
	h.installed(first) // its configuration is the edited one
	h.must("systemctl", "start", "flowtally")
	h.count(1000, true)
	h.must("dpkg", "--purge", "flowtally")
	keeps("purge")
	h.must("systemctl", "stop", "other")
	h.must("sh", "-c", "rm -f /run/flowtally/other.* /run/flowtally-control/other.* /tmp/other.yaml && rmdir /run/flowtally /run/flowtally-control /sys/fs/bpf/flowtally")
	after := h.left()
	for _, path := range after {
		if !slices.Contains(before, path) {
			t.Errorf("left after the purge: %s", path)
		}
	}
	if t.Failed() {
		t.Logf("before: %s", strings.Join(before, "\n"))
	}
	t.Logf("%d packets sent and counted", h.sent)
}
