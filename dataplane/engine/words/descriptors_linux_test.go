package words_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/published"
	"github.com/flowtally/flowtally/shm/shmtest"
	shmwords "github.com/flowtally/flowtally/shm/words"
)

// takeEnv names the mirror to a process of this test that can have one descriptor more.
const takeEnv = "FLOWTALLY_TEST_TAKE"

// A program with too many open files cannot receive the words. It gets an error that says so, in Go and in C. The words
// stay free, and the total has no discontinuity.
func TestProgramWithoutDescriptorsLeavesTheWordsFree(t *testing.T) {
	if path := os.Getenv(takeEnv); path != "" {
		next, err := unix.Dup(0)
		if err == nil {
			most := unix.Rlimit{Cur: uint64(next) + 1, Max: uint64(next) + 1}
			err = errors.Join(unix.Close(next), unix.Setrlimit(unix.RLIMIT_NOFILE, &most))
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = shmwords.Take(path, "app", shmwords.Options{})
		fmt.Printf("result: %v: %v\n", errors.Is(err, unix.EMFILE), err)
		return
	}
	need.Tool(t, "cc")
	path := mirror(t)
	svc := instance(t, path, "app")
	r := shmtest.MustOpen(t, path)
	check := func(what string) {
		t.Helper()
		lab.Eventually(t, what+": the words are free", func() bool { return published.Words(t, svc, "app") == dataplane.WordsFree })
		if all, err := r.Entries(); err != nil || len(all) != 1 || all[0].Continuity.Discontinuities != 0 {
			t.Errorf("%s: %+v (%v), want no discontinuity", what, all, err)
		}
		w := take(t, path, "app")
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	child := exec.Command(os.Args[0], "-test.run=^TestProgramWithoutDescriptorsLeavesTheWordsFree$")
	child.Env = append(os.Environ(), takeEnv+"="+path)
	if out, err := child.CombinedOutput(); err != nil || !strings.Contains(string(out), "result: true") {
		t.Errorf("Go: %v\n%s", err, out)
	}
	check("Go")
	bin, include := filepath.Join(t.TempDir(), "take"), "../../../shm/include"
	if out, err := exec.Command("cc", "-std=gnu11", "-I"+include, "-o", bin, include+"/testdata/take.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := exec.Command(bin, path, "app", "one").Output(); err != nil || !strings.HasPrefix(string(out), "-1 0 0 0 ") {
		t.Errorf("C: %v, %q, want FT_ERR_SYSTEM", err, out)
	}
	check("C")
}
