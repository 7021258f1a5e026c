package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/shm"
)

// buildC compiles the example in C and returns its path.
func buildC(t *testing.T) string {
	t.Helper()
	need.Tool(t, "cc")
	need.Header(t, "infiniband/verbs.h", "infiniband/mlx5dv.h")
	libs := software.Get(t)
	bin := filepath.Join(t.TempDir(), "own-queue-pair")
	cmd := exec.Command("cc", "-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror", "-I../../shm/include",
		"-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-o", bin, "c/own-queue-pair.c", libs.Verbs, libs.MLX5)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// runC runs the example in C to its end.
func runC(t *testing.T, bin string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), bin, args...)
	env := ibvtest.Env{Devices: []ibvtest.Device{{Name: "swnic0", Netdev: "lo"}}}
	cmd.Env = append(append(os.Environ(), env.Environ()...), "LD_LIBRARY_PATH="+filepath.Dir(software.Get(t).Verbs))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// A program in C with two queue pairs of its own counts the ring of their completion queue, many times around, into
// reserved words. Another program in C goes on with the total.
func TestTwoQueuePairsInC(t *testing.T) {
	bin := buildC(t)
	svc, path := instance(t, "app")
	in, err := shm.OpenPath(path, shm.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	c, err := in.Counter("app")
	if err != nil {
		t.Fatal(err)
	}
	for total := uint64(10000); total <= 20000; total += 10000 {
		out, err := runC(t, bin, path, "app", "swnic0", "5000")
		if want := "10000 completions, 0 errors\n"; err != nil || out != want {
			t.Fatalf("%v, printed %q, want %q", err, out, want)
		}
		if s := state(t, svc, "app"); s != dataplane.WordsFree {
			t.Errorf("the words are %s after the end of the program", s)
		}
		until(t, "the mirror has the total", func() bool {
			v, err := c.Load()
			if err == nil && v.Completions() > total {
				t.Fatalf("%d completions, want %d", v.Completions(), total)
			}
			return err == nil && v.Completions() == total
		})
	}
	for name, want := range map[string]string{
		"app":    "swnic1: No such device\n0 completions, 0 errors\n",
		"nosuch": "nosuch: counter: no live counter has that name or index; flowtally get lists all counters\n",
	} {
		if out, err := runC(t, bin, path, name, "swnic1", "1"); err == nil || out != want {
			t.Errorf("%s: %v, printed %q, want %q", name, err, out, want)
		}
	}
}
