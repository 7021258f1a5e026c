//go:build releases

package main

import (
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/rdmacore"
)

// TestKernelOwnQueuePairs runs the programs of this example, in Go and in C, over the real libmlx5 of each release and the
// real libefa of the one that has completion counters. They run in the root of the release, over the uverbs kernel in
// software. The instance runs outside.
func TestKernelOwnQueuePairs(t *testing.T) {
	for _, suite := range rdmacore.Suites() {
		t.Run(suite, func(t *testing.T) {
			release := rdmacore.Get(t, suite)
			root := release.NewRoot(t)
			t.Log(root)
			n := newKernel(t, root)
			mlx5 := n.on(t, "mlx5_0", "libmlx5.so.1")
			bin := mlx5.buildC(t, "mlx5")
			compressions := []bool{false, true}
			if suites := rdmacore.Suites(); testing.Short() && suite != suites[len(suites)-1] {
				compressions = []bool{false} // the device compresses entries, not the release
			}
			for _, compressed := range compressions {
				name, inGo, inC := "mlx5", []string(nil), []string(nil)
				if compressed {
					name, inGo, inC = "mlx5 compressed", []string{"-compress"}, []string{"compressed"}
				}
				t.Run(name, func(t *testing.T) { twoQueuePairs(t, mlx5, "cq_ring", inGo...) })
				t.Run(name+" in C", func(t *testing.T) { twoQueuePairsInC(t, mlx5, bin, inC...) })
				t.Run(name+" killed", func(t *testing.T) { killedProgram(t, mlx5, inGo...) })
				t.Run(name+" killed in C", func(t *testing.T) { killedProgramInC(t, mlx5, bin, inC...) })
			}
			t.Run("mlx5 collapsed", func(t *testing.T) { twoQueuePairs(t, mlx5, "collapsed_cq", "-collapsed") })
			t.Run("mlx5 collapsed killed", func(t *testing.T) { killedProgram(t, mlx5, "-collapsed") })
			t.Run("mlx5 hostile", func(t *testing.T) { hostileProgram(t, mlx5) })
			if !release.At(65, 0) {
				return
			}
			efa := n.on(t, "efa_0", "libefa.so.1")
			bin = efa.buildC(t, "efa")
			t.Run("efa", func(t *testing.T) { twoQueuePairs(t, efa, "comp_cntr") })
			t.Run("efa in C", func(t *testing.T) { twoQueuePairsInC(t, efa, bin) })
			t.Run("efa killed", func(t *testing.T) { killedProgram(t, efa) })
			t.Run("efa killed in C", func(t *testing.T) { killedProgramInC(t, efa, bin) })
			t.Run("efa hostile", func(t *testing.T) { hostileProgram(t, efa) })
		})
	}
}

// kernel is the uverbs kernel in software in front of the libraries of a release.
type kernel struct {
	root *rdmacore.Root
	ns   *lab.Netns
	env  []string
}

func newKernel(t *testing.T, root *rdmacore.Root) *kernel {
	t.Helper()
	ns, err := lab.NewNetns("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	pair, err := lab.NewPair(ns, ns, "v0", "v1", lab.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pair.Close() })
	e := ibvtest.Env{Devices: []ibvtest.Device{{Name: "mlx5_0", Netdev: "v0"}, {Name: "efa_0", Netdev: "v1"}}}
	return &kernel{root: root, ns: ns, env: append(root.Preload(t, software.Get(t).Kernel, "v0", "v1"), e.Environ()...)}
}

// on returns a device of the kernel. Its programs run in the root, and the instances have their mirrors below it.
func (k *kernel) on(t *testing.T, device, library string) *nic {
	t.Helper()
	n := &nic{device: device, dir: filepath.Join(k.root.Dir, "run"), seen: "/run", env: k.env}
	n.cc = []string{"-isystem", k.root.Include, "-fsanitize=undefined", "-static-libubsan", "-Wl,--unresolved-symbols=ignore-in-shared-libs"}
	for _, name := range []string{"libibverbs.so.1", library} {
		paths, err := filepath.Glob(filepath.Join(k.root.Dir, "usr/lib/*", name))
		if err != nil || len(paths) != 1 {
			t.Fatalf("%s: the root has %q (%v), want one", name, paths, err)
		}
		n.cc = append(n.cc, paths[0])
	}
	n.loaded = func(t *testing.T, pid int) {
		t.Helper()
		evidence, err := rdmacore.EvidenceOf(pid)
		if err != nil {
			t.Error(err)
		}
		for _, name := range []string{"libibverbs.so.1", library, "uverbs.so"} {
			if !slices.ContainsFunc(evidence, func(line string) bool { return strings.HasPrefix(filepath.Base(line), name) }) {
				t.Errorf("the program has not loaded %s: %q", name, evidence)
			}
		}
		t.Logf("loaded:\n%s", strings.Join(evidence, "\n"))
	}
	n.start = func(cmd *exec.Cmd) error {
		err := k.root.Enter(cmd)
		return errors.Join(err, k.ns.Do(cmd.Start))
	}
	return n
}
