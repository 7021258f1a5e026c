package rdmacore

import (
	"bufio"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// Preload puts the uverbs kernel in software in front of the root's libraries: it copies so (ibvtest.Libs.Kernel)
// into the root, mounts /proc there until the end of the test, and names the netdevs of the root's devices in sysfs,
// in the order of Devices. A name that is empty leaves the device without a netdev, as an EFA is. It returns the environment for Run: the variable LD_PRELOAD. The caller adds the
// environment of an ibvtest.Env whose devices are Env(netdevs).
//
// Programs that use the devices must run in the network namespace of the netdevs: call Run inside lab.Netns.Do.
func (r *Root) Preload(t testing.TB, so string, netdevs ...string) []string {
	t.Helper()
	need.Cap(t, "sys_admin", "net_raw", "sys_ptrace")
	env, err := r.preload(so, netdevs...)
	if err != nil {
		t.Fatal(err)
	}
	r.MountProc(t)
	return env
}

// Serve puts the uverbs kernel in software below the root's libraries by the program server (ibvtest.Libs.Server): Run
// runs each program by it. Processes that a program starts share its devices. The rest is as Preload has it.
func (r *Root) Serve(t testing.TB, server string, netdevs ...string) {
	t.Helper()
	need.Command(t, "seccomp", server, "true")
	r.server = "/" + filepath.Base(server)
	r.Preload(t, server, netdevs...)
}

// MountProc mounts /proc in the root until the end of the test: a program that starts itself again needs it.
func (r *Root) MountProc(t testing.TB) {
	t.Helper()
	need.Cap(t, "sys_admin")
	proc := filepath.Join(r.Dir, "proc")
	if err := unix.Mount("proc", proc, "proc", 0, ""); err != nil {
		t.Fatalf("mounting %s: %v", proc, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(proc, unix.MNT_DETACH); err != nil {
			t.Errorf("unmounting %s: %v", proc, err)
		}
	})
}

// preload is Preload without /proc. A root with a server needs no environment.
func (r *Root) preload(so string, netdevs ...string) (env []string, err error) {
	inside := "/" + filepath.Base(so)
	if err := copyFile(so, filepath.Join(r.Dir, inside)); err != nil {
		return nil, fmt.Errorf("copying the uverbs kernel: %w", err)
	}
	for i, netdev := range netdevs {
		if err := r.netdev(i, netdev); err != nil {
			return nil, fmt.Errorf("naming the netdev of %s: %w", Devices()[i].Name, err)
		}
	}
	if r.server != "" {
		return nil, nil
	}
	return []string{"LD_PRELOAD=" + inside}, nil
}

// netdev writes the files of sysfs by which programs find the port of a device and its netdev. An EFA has no netdev.
func (r *Root) netdev(number int, netdev string) error {
	d := Devices()[number]
	pci := pciPath(number)
	port := pci + "/infiniband/" + d.Name + "/ports/1"
	files := map[string]string{
		port + "/state":   "4: ACTIVE\n",
		port + "/gids/0":  "fe80:0000:0000:0000:0000:00ff:fe00:0000\n",
		port + "/pkeys/0": "0xffff\n",
	}
	if d.driver != "mlx5_core" {
		files[port+"/link_layer"] = "Unspecified\n"
		files[port+"/gid_attrs/types/0"] = "IB/RoCE v1\n"
		return r.write(files)
	}
	files[port+"/link_layer"] = "Ethernet\n"
	files[port+"/gid_attrs/ndevs/0"] = netdev + "\n"
	files[port+"/gid_attrs/types/0"] = "RoCE v2\n"
	files[pci+"/net/"+netdev+"/dev_port"] = "0\n"
	if err := r.write(files); err != nil {
		return err
	}
	return r.link(map[string]string{
		pci + "/net/" + netdev + "/device": "../..",
		"sys/class/net/" + netdev:          "../../../" + pci + "/net/" + netdev,
	})
}

// Evidence lists the libraries of rdma-core that this process has loaded, with their build ids, and the uverbs kernel: a test
// that runs in a root prints it. It says that the libraries of the release made the calls.
func Evidence() ([]string, error) { return EvidenceOf(os.Getpid()) }

// EvidenceOf is Evidence of another process.
func EvidenceOf(pid int) ([]string, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var list []string
	seen := make(map[string]bool)
	for s := bufio.NewScanner(f); s.Scan(); {
		at := strings.IndexByte(s.Text(), '/')
		if at < 0 {
			continue
		}
		path := s.Text()[at:]
		name := filepath.Base(path)
		wanted := strings.HasPrefix(name, "libibverbs") || strings.HasPrefix(name, "libmlx5") ||
			strings.HasPrefix(name, "libefa") || name == "uverbs.so"
		if !wanted || seen[path] {
			continue
		}
		seen[path] = true
		id, err := buildID(path)
		if err != nil {
			return nil, err
		}
		list = append(list, path+" "+id)
	}
	return list, nil
}

// Libraries lists the libraries of rdma-core in the tree, which mlx5 uses, with their build ids.
func (r *Root) Libraries() ([]string, error) {
	var list []string
	for _, name := range []string{"libibverbs.so.1", "libmlx5.so.1"} {
		paths, err := filepath.Glob(filepath.Join(r.Dir, "usr/lib/*", name))
		if err == nil && len(paths) != 1 {
			err = fmt.Errorf("%s: the tree has %q, want one", name, paths)
		}
		if err != nil {
			return nil, err
		}
		id, err := buildID(paths[0])
		if err != nil {
			return nil, err
		}
		list = append(list, strings.TrimPrefix(paths[0], r.Dir)+" "+id)
	}
	return list, nil
}

func buildID(path string) (string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	s := f.Section(".note.gnu.build-id")
	if s == nil {
		return "without a build id", nil
	}
	note, err := s.Data()
	if err != nil || len(note) < 16 {
		return "", fmt.Errorf("reading the build id of %s: %w", path, err)
	}
	return hex.EncodeToString(note[16:]), nil
}
