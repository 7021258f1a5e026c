package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/published"
	"github.com/flowtally/flowtally/shm/shmtest"
)

// buildC compiles the example in C for devices of mlx5 or efa, and returns its path.
func (n *nic) buildC(t *testing.T, driver string) string {
	t.Helper()
	need.Tool(t, "cc")
	bin := filepath.Join(t.TempDir(), "own-queue-pair-"+driver)
	args := []string{
		"-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror", "-I../../shm/include", "-fno-sanitize-recover=all",
		"-o", bin, "c/own-queue-pair.c", "c/" + driver + ".c",
	}
	if out, err := exec.Command("cc", append(args, n.cc...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// A program in C with two queue pairs of its own counts the ring of their completion queue, many times around, into
// reserved words. Another program in C goes on with the total.
func TestTwoQueuePairsInC(t *testing.T) {
	need.Header(t, "infiniband/verbs.h", "infiniband/mlx5dv.h")
	n := softNIC(t, ibvtest.Env{})
	bin := n.buildC(t, "mlx5")
	twoQueuePairsInC(t, n, bin)
	_, path := n.instance(t, "app")
	for _, tt := range [][3]string{
		{"app", "mlx5_1", "mlx5_1: No such device\n"},
		{"nosuch", n.device, "nosuch: counter: no live counter has that name or index; flowtally get lists all counters\n"},
	} {
		name, device, want := tt[0], tt[1], tt[2]
		if p := n.run(t, bin, nil, path, name, device, "1"); p.wait() == nil || p.out.String() != want {
			t.Errorf("%s on %s: %v, printed %q, want %q", name, device, p.err, p.out, want)
		}
	}
}

func twoQueuePairsInC(t *testing.T, n *nic, bin string, more ...string) {
	svc, path := n.instance(t, "app")
	r := shmtest.MustOpen(t, path)
	const count = 5000
	for total := uint64(2 * count); total <= 4*count; total += 2 * count {
		p := n.run(t, bin, nil, append([]string{n.path(path), "app", n.device, fmt.Sprint(count)}, more...)...)
		if err, want := p.wait(), fmt.Sprintf("%d completions, 0 errors\n", 2*count); err != nil || p.out.String() != want {
			t.Fatalf("%v, printed %q, want %q", err, p.out, want)
		}
		if s := published.Words(t, svc, "app"); s != dataplane.WordsFree {
			t.Errorf("the words are %s after the end of the program", s)
		}
		lab.Eventually(t, "the mirror has the total", func() bool {
			got := published.Completions(t, r, "app")
			if got > total {
				t.Fatalf("%d completions, want %d", got, total)
			}
			return got == total
		})
	}
	t.Logf("two programs in C on %s %q: %d completions, all in the mirror", n.device, more, 4*count)
}

// A program in C that is killed amid its operations leaves its words, abandoned, with the last values.
func TestKilledProgramInC(t *testing.T) {
	need.Header(t, "infiniband/verbs.h", "infiniband/mlx5dv.h")
	n := softNIC(t, ibvtest.Env{})
	killedProgramInC(t, n, n.buildC(t, "mlx5"))
}

func killedProgramInC(t *testing.T, n *nic, bin string, more ...string) {
	killed(t, n, func(path string, count int) *process {
		return n.run(t, bin, nil, append([]string{n.path(path), "app", n.device, fmt.Sprint(count)}, more...)...)
	})
}
