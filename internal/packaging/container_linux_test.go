package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// image builds configs/container/Containerfile with the static programs, and returns its root file system.
func image(t *testing.T) string {
	t.Helper()
	need.Root(t)
	need.Tool(t, "make", "buildah", "crun")
	programs := t.TempDir()
	command(t, "make", "-C", "../..", "--no-print-directory", "build", "CGO_ENABLED=0", "BIN="+programs)
	store := t.TempDir()
	t.Cleanup(func() { _ = exec.Command("umount", "--recursive", "--quiet", store).Run() })
	buildah := func(args ...string) string {
		t.Helper()
		return command(t, "buildah", append([]string{"--storage-driver", "vfs", "--root", filepath.Join(store, "root"), "--runroot", filepath.Join(store, "run")}, args...)...)
	}
	buildah("bud", "--isolation", "chroot", "--tag", "flowtally", "--file", "../../configs/container/Containerfile", programs)
	return buildah("mount", buildah("from", "localhost/flowtally"))
}

// command runs a command and returns its output without the line's end.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	var talk bytes.Buffer
	cmd.Stderr = &talk
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", cmd.Args, err, out, &talk)
	}
	return strings.TrimSpace(string(out))
}

// bundle writes the OCI bundle of the container of a pod: the capabilities, the user and the mounts that the manifest
// gives it. hostPath and ConfigMap volumes are the directories of sources.
func bundle(t *testing.T, root string, spec corev1.PodSpec, args []string, sources map[string]string) string {
	t.Helper()
	type object = map[string]any
	c := spec.Containers[0]
	mounted := []object{
		{"destination": "/proc", "type": "proc", "source": "proc"},
		{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": []string{"mode=755"}},
		{"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": []string{"mode=1777"}},
		{"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": []string{"ro", "nosuid", "nodev", "noexec"}},
	}
	for _, m := range c.VolumeMounts {
		mount := object{"destination": m.MountPath, "type": "tmpfs", "source": "tmpfs", "options": []string{"mode=1777"}}
		if source := sources[m.MountPath]; source != "" {
			mount = object{"destination": m.MountPath, "type": "bind", "source": source, "options": []string{"rbind", "rprivate"}}
		}
		if m.ReadOnly {
			mount["options"] = append(mount["options"].([]string), "ro")
		}
		mounted = append(mounted, mount)
	}
	for _, m := range mounted {
		// crun makes missing directories, and fails where the crun of another container of this root makes one meanwhile.
		if err := os.MkdirAll(filepath.Join(root, m["destination"].(string)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	capabilities := []string{}
	for _, name := range c.SecurityContext.Capabilities.Add {
		capabilities = append(capabilities, "CAP_"+string(name))
	}
	user := *c.SecurityContext.RunAsUser
	config, err := json.Marshal(object{
		"ociVersion": "1.0.2",
		"root":       object{"path": root, "readonly": *c.SecurityContext.ReadOnlyRootFilesystem},
		"mounts":     mounted,
		"process": object{
			"user": object{"uid": user, "gid": user}, "args": append([]string{"/usr/bin/flowtally"}, args...), "cwd": "/", "env": []string{"PATH=/usr/bin"},
			"noNewPrivileges": !*c.SecurityContext.AllowPrivilegeEscalation,
			"capabilities":    object{"bounding": capabilities, "effective": capabilities, "permitted": capabilities},
		},
		// No network namespace: hostNetwork, and a reader needs none.
		"linux": object{"namespaces": []object{{"type": "mount"}, {"type": "pid"}, {"type": "ipc"}, {"type": "uts"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// oci is a command that runs a bundle until its process ends. crun refuses a machine that has cgroups of both versions, even
// if it makes none: it sees version 2 alone.
func oci(t *testing.T, bundle string) *exec.Cmd {
	return exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c", `mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec crun "$@"`, "sh",
		"--root", filepath.Join(bundle, "state"), "--cgroup-manager=disabled", "run", "--bundle", bundle, lab.Unique("ft-"))
}

// TestContainerCountsExactly builds the image, runs it with the privileges and the mounts of the DaemonSet, and counts
// real packets. The pod of reader.yaml reads the exact number, without privilege. After SIGTERM no program is attached.
func TestContainerCountsExactly(t *testing.T) {
	root := image(t)
	need.Netns(t)
	need.BPF(t)
	wire, err := lab.NewWire(lab.WireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer wire.Close()
	mirrors, err := os.MkdirTemp("/dev/shm", "flowtally-container-") // a tmpfs, as /run of a node is
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(mirrors)
	control, configuration := t.TempDir(), t.TempDir()
	if err := errors.Join(os.Chmod(mirrors, 0o755), os.WriteFile(filepath.Join(configuration, "flowtally.yaml"),
		[]byte("interfaces: [{name: "+wire.Near.Name+", mode: native}]\nflows:\n  - {name: udp, match: udp dport 7000}\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	sources := map[string]string{"/run/flowtally": mirrors, "/run/flowtally-control": control, "/sys/fs/bpf": need.BPFFS(t), "/etc/flowtally": configuration}
	set := first[*appsv1.DaemonSet](t, objects(t, "flowtally.yaml")).Spec.Template.Spec
	counting := oci(t, bundle(t, root, set, set.Containers[0].Args, sources))
	var talk bytes.Buffer
	counting.Stdout, counting.Stderr = &talk, &talk
	if err := wire.Near.NS.Do(counting.Start); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- counting.Wait() }()

	pod := first[*corev1.Pod](t, objects(t, "reader.yaml")).Spec
	get := func() (packets uint64, out string) {
		text, err := oci(t, bundle(t, root, pod, []string{"get", "-o", "json", "udp"}, sources)).CombinedOutput()
		var reading struct{ Counters []struct{ Packets uint64 } }
		if err != nil || json.Unmarshal(text, &reading) != nil || len(reading.Counters) != 1 {
			return 0, string(text)
		}
		return reading.Counters[0].Packets, string(text)
	}
	const packets = 1000
	var out string
	lab.Eventually(t, "the start of the container", func() bool {
		select {
		case err := <-ended:
			t.Fatalf("the container ended: %v\n%s", err, &talk)
		default:
		}
		return oci(t, bundle(t, root, set, set.Containers[0].StartupProbe.Exec.Command[1:], sources)).Run() == nil
	})
	send(t, wire, packets)
	var got uint64
	for end := time.Now().Add(30 * time.Second); got < packets && time.Now().Before(end); {
		got, out = get()
	}
	if got != packets {
		t.Errorf("counted %d packets of %d: %s", got, packets, out)
	}
	if err := counting.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the container ended with %v\n%s", err, &talk)
	}
	if pins, err := filepath.Glob(filepath.Join(need.BPFFS(t), "flowtally", "*")); err != nil || len(pins) > 0 {
		t.Errorf("left: %v, %v", pins, err)
	}
	t.Logf("%d packets sent and counted", got)
}
