package ibvtest_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// A build from unchanged sources is used again. An incomplete one must be repeated.
func TestBuildIsCached(t *testing.T) {
	libs := libraries(t, "strict", "-Werror")
	dir := filepath.Dir(libs.Shim)
	if want := ibvtest.LibsIn(dir); libs != want {
		t.Errorf("Build answers %v, LibsIn %v", libs, want)
	}
	past := time.Now().Add(-time.Hour).Truncate(time.Second)
	for _, p := range []string{libs.Kernel, libs.Server, libs.Shim, libs.Shim61} {
		info, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o022 != 0 {
			t.Errorf("%s has mode %v: others could write it", p, info.Mode())
		}
		if err := os.Chtimes(p, past, past); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ibvtest.Build(dir, "-Werror"); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{libs.Kernel, libs.Server, libs.Shim, libs.Shim61} {
		if info, err := os.Stat(p); err != nil || !info.ModTime().Equal(past) {
			t.Errorf("%s was built again (%v)", p, err)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, ".build-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("Build left %q behind (%v)", left, err)
	}
}

func TestKernelAloneIsBuiltOnceForItsSources(t *testing.T) {
	need.Tool(t, "gcc")
	cache := t.TempDir()
	path, err := ibvtest.BuildKernel(cache)
	if err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-time.Hour).Truncate(time.Second)
	if err := os.Chtimes(path, past, past); err != nil {
		t.Fatal(err)
	}
	again, err := ibvtest.BuildKernel(cache)
	if err != nil || again != path {
		t.Fatalf("built at %s and then at %s, %v", path, again, err)
	}
	if info, err := os.Stat(path); err != nil || !info.ModTime().Equal(past) {
		t.Errorf("%s was built again (%v)", path, err)
	}
	files, err := filepath.Glob(filepath.Join(cache, "*", "*"))
	if err != nil || len(files) != 1 || files[0] != path {
		t.Errorf("the cache has %q, %v; want %s alone", files, err, path)
	}
}

// There may be no compiler, or the compiler may refuse the sources.
func TestFailedBuildNamesTheReason(t *testing.T) {
	t.Run("no compiler", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		t.Setenv("CC", "")
		if _, err := ibvtest.Build(t.TempDir()); !errors.Is(err, ibvtest.ErrNoCompiler) || !strings.Contains(err.Error(), "install gcc") {
			t.Errorf("%v, want ErrNoCompiler and what to do", err)
		}
	})
	t.Run("refused", func(t *testing.T) {
		need.Tool(t, "gcc")
		dir := t.TempDir()
		_, err := ibvtest.Build(dir, "-include", "/nowhere.h")
		if err == nil || !strings.Contains(err.Error(), "uverbs.so") || !strings.Contains(err.Error(), "nowhere.h") {
			t.Errorf("%v, want the library and the compiler's words", err)
		}
		if _, err := os.Stat(ibvtest.LibsIn(dir).Kernel); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a library is there though it did not compile (%v)", err)
		}
	})
}
