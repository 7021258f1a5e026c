package vm

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// libraryDirs are where the loader of Debian's glibc looks without a cache file,
// in its order, and where libibverbs keeps its providers.
var libraryDirs = []string{
	"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib",
}

// Program copies an ELF program or shared object to guest, with its loader and
// the shared libraries it names, which are looked for below each of roots in turn: the
// directories of unpacked packages, and "/" for this machine's own.
func (img *Image) Program(host, guest string, roots ...string) error {
	img.File(host, guest, 0o755)
	return img.libraries(host, roots)
}

// Library copies the shared library of that name as a program would need it:
// for those that are opened at run time.
func (img *Image) Library(name string, roots ...string) error {
	for _, root := range roots {
		for _, dir := range libraryDirs {
			host := filepath.Join(root, dir, name)
			if _, err := os.Stat(host); errors.Is(err, fs.ErrNotExist) {
				continue
			} else if err != nil {
				return err
			}
			guest := filepath.Join(dir, name)
			if _, ok := img.members[place(guest)]; ok {
				return nil
			}
			return img.Program(host, guest, roots...)
		}
	}
	return fmt.Errorf("looking for %s: not below any of %s in %s", name, strings.Join(roots, ", "), strings.Join(libraryDirs, ", "))
}

func (img *Image) libraries(host string, roots []string) error {
	f, err := elf.Open(host)
	if err != nil {
		return fmt.Errorf("reading the program %s: %w", host, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		name := make([]byte, p.Filesz)
		if _, err := p.ReadAt(name, 0); err != nil {
			return fmt.Errorf("reading the loader's name in %s: %w", host, err)
		}
		loader := strings.TrimRight(string(name), "\x00")
		if _, ok := img.members[place(loader)]; !ok {
			img.File(loader, loader, 0o755)
		}
	}
	needed, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("reading the libraries of %s: %w", host, err)
	}
	for _, name := range needed {
		if err := img.Library(name, roots...); err != nil {
			return fmt.Errorf("packing %s: %w", host, err)
		}
	}
	return nil
}
