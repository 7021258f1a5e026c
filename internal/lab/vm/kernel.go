package vm

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Kernel is a kernel of Debian that was unpacked.
type Kernel struct {
	Release string // as uname -r says
	Image   string // path of vmlinuz
	modules map[string]string
	builtin map[string]bool
}

// OpenKernel reads the kernel whose packages were unpacked, each below one of dirs.
func OpenKernel(dirs ...string) (*Kernel, error) {
	images, err := find(dirs, "boot/vmlinuz-*", "usr/lib/modules/*/vmlinuz")
	if err != nil {
		return nil, err
	}
	if len(images) != 1 {
		return nil, fmt.Errorf("looking for the kernel below %s: %d of them, want one", strings.Join(dirs, ", "), len(images))
	}
	release, named := strings.CutPrefix(filepath.Base(images[0]), "vmlinuz-")
	if !named {
		release = filepath.Base(filepath.Dir(images[0]))
	}
	k := &Kernel{Release: release, Image: images[0], modules: make(map[string]string), builtin: make(map[string]bool)}

	lists, err := find(dirs, "lib/modules/"+release+"/modules.builtin", "usr/lib/modules/"+release+"/modules.builtin")
	if err != nil {
		return nil, err
	}
	if len(lists) != 1 {
		return nil, fmt.Errorf("looking for the built-in modules of kernel %s: %d lists, want one", release, len(lists))
	}
	data, err := os.ReadFile(lists[0])
	if err != nil {
		return nil, fmt.Errorf("reading the built-in modules of kernel %s: %w", release, err)
	}
	for line := range strings.Lines(string(data)) {
		k.builtin[moduleName(strings.TrimSpace(line))] = true
	}

	roots, err := find(dirs, "lib/modules/"+release, "usr/lib/modules/"+release)
	if err != nil {
		return nil, err
	}
	for _, root := range roots {
		err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && strings.Contains(d.Name(), ".ko") {
				k.modules[moduleName(p)] = p
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("listing the modules of kernel %s: %w", release, err)
		}
	}
	return k, nil
}

// find returns the files that match one of patterns below one of dirs.
func find(dirs []string, patterns ...string) ([]string, error) {
	var found []string
	for _, dir := range dirs {
		for _, p := range patterns {
			files, err := filepath.Glob(filepath.Join(dir, p))
			if err != nil {
				return nil, fmt.Errorf("looking for %s below %s: %w", p, dir, err)
			}
			found = append(found, files...)
		}
	}
	return found, nil
}

// moduleName is the kernel's name of the module in that file.
func moduleName(file string) string {
	name, _, _ := strings.Cut(path.Base(filepath.ToSlash(file)), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

// Module is one that is to be loaded.
type Module struct {
	Name string
	Data []byte // the object, not compressed
}

// Modules returns the modules of those names and all their dependencies, each once and after its
// own dependencies. Built-in modules are left out. A package that was not installed has no
// modules.dep: the dependencies are read from the modules.
func (k *Kernel) Modules(names ...string) ([]Module, error) {
	var order []Module
	seen := make(map[string]bool)
	var visit func(name, by string) error
	visit = func(name, by string) error {
		name = strings.ReplaceAll(name, "-", "_")
		if seen[name] || k.builtin[name] {
			return nil
		}
		seen[name] = true // also while it is visited: modules do not depend in circles
		file, ok := k.modules[name]
		if !ok {
			return fmt.Errorf("looking for module %s%s: kernel %s does not have it", name, by, k.Release)
		}
		data, err := readModule(file)
		if err != nil {
			return fmt.Errorf("reading module %s: %w", name, err)
		}
		needs, err := dependencies(data)
		if err != nil {
			return fmt.Errorf("reading the dependencies of module %s: %w", name, err)
		}
		for _, d := range needs {
			if err := visit(d, ", which "+name+" needs"); err != nil {
				return err
			}
		}
		order = append(order, Module{name, data})
		return nil
	}
	for _, n := range names {
		if err := visit(n, ""); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// readModule reads a module that may be compressed.
func readModule(file string) ([]byte, error) {
	tool := map[string]string{".xz": "xz", ".zst": "zstd", ".gz": "gzip"}[filepath.Ext(file)]
	if tool == "" {
		return os.ReadFile(file)
	}
	cmd := exec.Command(tool, "-dc", file)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	data, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("unpacking with %s: %w: %s", tool, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return data, nil
}

// dependencies reads the "depends" of a module's .modinfo: strings with an end each.
func dependencies(module []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(module))
	if err != nil {
		return nil, err
	}
	s := f.Section(".modinfo")
	if s == nil {
		return nil, errors.New("it has no section .modinfo")
	}
	info, err := s.Data()
	if err != nil {
		return nil, err
	}
	var needs []string
	for entry := range bytes.SplitSeq(info, []byte{0}) {
		if list, ok := bytes.CutPrefix(entry, []byte("depends=")); ok {
			needs = strings.Split(string(list), ",")
		}
	}
	return slices.DeleteFunc(needs, func(n string) bool { return n == "" }), nil
}
