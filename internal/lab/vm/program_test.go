package vm

import (
	"debug/elf"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// shell is a program of this machine that is linked dynamically.
func shell(t *testing.T) string {
	t.Helper()
	const path = "/bin/sh"
	f, err := elf.Open(path)
	if err != nil {
		t.Skipf("%s of %s: %v", path, runtime.GOOS, err)
	}
	defer f.Close()
	if needed, err := f.ImportedLibraries(); err != nil || len(needed) == 0 {
		t.Skipf("%s needs no library, %v", path, err)
	}
	return path
}

// TestProgramBringsItsLoaderAndLibraries packs a program of this machine: with its loader, and with every library that
// it or one of those needs.
func TestProgramBringsItsLoaderAndLibraries(t *testing.T) {
	path := shell(t)
	img := NewImage()
	if err := img.Program(path, "/bin/sh", "/"); err != nil {
		t.Fatal(err)
	}
	loaders, libraries := 0, 0
	for _, name := range img.Names() {
		m := img.members[name]
		if m.host == "" {
			continue
		}
		base := filepath.Base(name)
		if strings.HasPrefix(base, "ld-") {
			loaders++
			continue
		}
		f, err := elf.Open(m.host)
		if err != nil {
			t.Fatal(err)
		}
		needed, err := f.ImportedLibraries()
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range needed {
			libraries++
			found := false
			for _, other := range img.Names() {
				found = found || filepath.Base(other) == n
			}
			if !found {
				t.Errorf("%s needs %s, which is not in the image", name, n)
			}
		}
	}
	if loaders == 0 || libraries == 0 {
		t.Errorf("%d loaders, %d libraries in %v", loaders, libraries, img.Names())
	}
}

// The first root that has it wins, and one that none has is an error that
// says where it was looked for.
func TestLibraryComesFromTheFirstRootThatHasIt(t *testing.T) {
	path := shell(t)
	dir := t.TempDir()
	own := filepath.Join(dir, "usr/lib/x86_64-linux-gnu/libown.so.1")
	if err := os.MkdirAll(filepath.Dir(own), 0o755); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(own, data, 0o644); err != nil {
		t.Fatal(err)
	}
	img := NewImage()
	if err := img.Library("libown.so.1", dir, "/"); err != nil {
		t.Fatal(err)
	}
	if m := img.members["usr/lib/x86_64-linux-gnu/libown.so.1"]; m.host != own {
		t.Errorf("it came from %q, want %q", m.host, own)
	}
	err = img.Library("libnone.so.1", dir, "/")
	if err == nil || !strings.Contains(err.Error(), "libnone.so.1") || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v; want an error that names the library and the roots", err)
	}
	text := filepath.Join(dir, "script")
	if err := os.WriteFile(text, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := img.Program(text, "/bin/script", "/"); err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v; want an error that names %s", err, text)
	}
}
