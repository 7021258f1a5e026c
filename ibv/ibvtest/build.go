package ibvtest

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/ibv/internal/abi"
)

//go:embed src
var sources embed.FS

// header is the file name of abi.VerbsHeader, which Build writes next to the sources.
const header = "verbs_abi.h"

// ErrNoCompiler is returned if there is no C compiler in PATH: gcc, or the program named by CC.
var ErrNoCompiler = errors.New("no C compiler")

// Libs contains the paths of the files made by Build.
type Libs struct {
	Kernel string // uverbs.so, for LD_PRELOAD in front of rdma-core's libraries: the uverbs kernel in software
	Server string // uverbsd, a program that runs a command over the uverbs kernel in software, which its children share
	Shim   string // shim.so, in place of any of the host's three libraries: fails verbs, and has those of rdma-core 60 and 65
	Shim61 string // shim-61.so, in place of libmlx5.so.1: mlx5dv_create_flow reads actions 24 bytes apart, as in rdma-core 61.0
}

// LibsIn returns the paths of the files in dir, whether they exist or not.
func LibsIn(dir string) Libs {
	return Libs{
		Kernel: filepath.Join(dir, "uverbs.so"),
		Server: filepath.Join(dir, "uverbsd"),
		Shim:   filepath.Join(dir, "shim.so"),
		Shim61: filepath.Join(dir, "shim-61.so"),
	}
}

// stamp is the file beside the libraries that names the sources, the compiler and the flags of the
// build.
const stamp = "built-from"

// flags are the compiler flags for every file. Warnings are errors only in the tests: another version of the
// compiler may have other warnings.
var flags = []string{
	"-std=gnu11", "-O2", "-g", "-fPIC", "-fvisibility=hidden", "-pthread",
	"-Wl,-z,defs", "-Wall", "-Wextra", "-I.",
}

// library is one file to build.
type library struct {
	output   string
	program  bool
	version  string                 // its version script; "": none
	includes func(name string) bool // the C files of which it is made
	needs    []string               // the sonames of libraries of the host on which it depends
}

// libraries lists the files to build.
func libraries(libs Libs) []library {
	host := []string{"libibverbs.so.1", "libmlx5.so.1", "libefa.so.1"}
	return []library{
		{output: libs.Kernel, includes: isKernel},
		{output: libs.Server, includes: isServer, program: true},
		{output: libs.Shim, includes: isShim, version: "shim/shim.map", needs: host},
		{output: libs.Shim61, includes: isShim61, version: "shim/shim.map", needs: host[1:2]},
	}
}

// isShim reports whether a file belongs to the shim.
func isShim(name string) bool {
	return strings.HasPrefix(name, "shim/") && !isShim61(name)
}

func isShim61(name string) bool { return name == "shim/mlx5_stride.c" }

// isKernel reports whether a file belongs to the uverbs kernel in software.
func isKernel(name string) bool {
	return !strings.HasPrefix(name, "shim/") && name != "uverbs/uverbsd.c"
}

// isServer reports whether a file belongs to uverbsd, which serves the kernel to other processes.
func isServer(name string) bool {
	switch name {
	case "uverbs/uverbs_preload.c", "uverbs/uverbs_sysfs.c":
		return false
	}
	return !strings.HasPrefix(name, "shim/")
}

// Build compiles the files into dir, which it makes if needed, and returns their paths. It does nothing if dir
// has a build from the same sources by the same compiler. Several processes may build into one directory at once,
// because Build replaces whole files by rename. A privileged process may load them, so only the owner may
// have write access to dir and its files. extra is added to the compiler's flags.
//
// Build returns ErrNoCompiler if there is no compiler. Any other error contains the compiler's
// output.
func Build(dir string, extra ...string) (Libs, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Libs{}, fmt.Errorf("building the uverbs kernel: %w", err)
	}
	cc, err := compiler()
	if err != nil {
		return Libs{}, fmt.Errorf("building the uverbs kernel: %w", err)
	}
	from, err := identity(cc, extra)
	if err != nil {
		return Libs{}, fmt.Errorf("building the uverbs kernel: %w", err)
	}
	libs := LibsIn(dir)
	if current(libs, dir, from) {
		return libs, nil
	}

	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Libs{}, fmt.Errorf("building the uverbs kernel: %w", err)
	}
	work, err := os.MkdirTemp(dir, ".build-") // of the same file system, for rename
	if err != nil {
		return Libs{}, fmt.Errorf("building the uverbs kernel: %w", err)
	}
	defer os.RemoveAll(work)
	if err := build(cc, work, libraries(libs), extra); err != nil {
		return Libs{}, fmt.Errorf("building the uverbs kernel in %s: %w", dir, err)
	}

	// Write the stamp last. If it is missing, the next Build starts over.
	if err := replace(filepath.Join(work, stamp), filepath.Join(dir, stamp), []byte(from)); err != nil {
		return Libs{}, fmt.Errorf("building the uverbs kernel: %w", err)
	}
	return libs, nil
}

// BuildKernel compiles the uverbs kernel alone, unless a directory below cache has it, and returns the path of the
// file, as [Libs.Kernel]. Each version of the sources has a directory of its own, so that a process never loads another
// version than it asked for. The owner and the errors are those of Build.
func BuildKernel(cache string) (string, error) {
	path, err := buildKernel(cache)
	if err != nil {
		return "", fmt.Errorf("building the uverbs kernel in %s: %w", cache, err)
	}
	return path, nil
}

func buildKernel(cache string) (string, error) {
	cc, err := compiler()
	if err != nil {
		return "", err
	}
	from, err := identity(cc, nil)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, from[:16])
	libs := LibsIn(dir)
	if _, err := os.Stat(libs.Kernel); err == nil {
		return libs.Kernel, nil
	}

	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(dir, ".build-") // of the same file system, for rename
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	all := libraries(libs)
	kernel := slices.IndexFunc(all, func(l library) bool { return l.output == libs.Kernel })
	return libs.Kernel, build(cc, work, all[kernel:kernel+1], nil)
}

// compiler returns the path of the C compiler.
func compiler() (string, error) {
	for _, name := range []string{os.Getenv("CC"), "gcc", "cc"} {
		if name == "" {
			continue
		}
		if p, err := exec.LookPath(name); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("%w: neither gcc nor cc is on PATH: install gcc", ErrNoCompiler)
}

// identity returns the identity of a build: the sources, the compiler and the flags.
func identity(cc string, extra []string) (string, error) {
	h := sha256.New()
	version, err := exec.Command(cc, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", cc, err)
	}
	fmt.Fprintf(h, "%s\n%s\n%q\n%q\n", cc, version, flags, extra)
	fmt.Fprintf(h, "%s %d\n%s", header, len(abi.VerbsHeader()), abi.VerbsHeader())
	err = fs.WalkDir(sources, "src", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := sources.ReadFile(name)
		fmt.Fprintf(h, "%s %d\n%s", name, len(data), data)
		return err
	})
	return hex.EncodeToString(h.Sum(nil)) + "\n", err
}

// current reports whether dir has every file of the build that from identifies.
func current(libs Libs, dir, from string) bool {
	have, err := os.ReadFile(filepath.Join(dir, stamp))
	if err != nil || string(have) != from {
		return false
	}
	for _, l := range libraries(libs) {
		if _, err := os.Stat(l.output); err != nil {
			return false
		}
	}
	return true
}

// build builds the files in the directory work, and puts each in its place by rename.
func build(cc, work string, list []library, extra []string) error {
	names, err := unpack(work)
	if err != nil {
		return err
	}
	for _, l := range list {
		output := filepath.Join(work, "library")
		if err := l.compile(cc, work, output, names, extra); err != nil {
			return err
		}
		if err := os.Chmod(output, 0o755); err != nil {
			return err
		}
		if err := os.Rename(output, l.output); err != nil {
			return err
		}
	}
	return nil
}

// compile compiles the library from its files among names, which lie in the directory work.
func (l library) compile(cc, work, output string, names, extra []string) error {
	args := slices.Concat(flags, extra, []string{"-o", output})
	if !l.program {
		args = append(args, "-shared", "-Wl,-soname,"+filepath.Base(l.output))
	}
	if l.version != "" {
		args = append(args, "-Wl,--version-script="+l.version)
	}
	for _, soname := range l.needs {
		empty, err := dependency(cc, work, soname)
		if err != nil {
			return err
		}
		args = append(args, "-Wl,--no-as-needed", empty)
	}
	for _, n := range names {
		if strings.HasSuffix(n, ".c") && l.includes(n) {
			args = append(args, n)
		}
	}
	args = append(args, "-ldl")

	cmd := exec.Command(cc, args...)
	cmd.Dir = work
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compiling %s: %w\n%s", filepath.Base(l.output), err, bytes.TrimSpace(out))
	}
	return nil
}

// dependency makes an empty library to link with, which stands for the one that the host has at run time. The host of the
// build may have none.
func dependency(cc, work, soname string) (string, error) {
	empty := filepath.Join(work, "empty-"+soname)
	out, err := exec.Command(cc, "-shared", "-nostdlib", "-Wl,-soname,"+soname, "-o", empty, "-x", "c", os.DevNull).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("linking a stand-in for %s: %w\n%s", soname, err, bytes.TrimSpace(out))
	}
	return empty, nil
}

// unpack writes the sources into dir and returns their names, relative to dir.
func unpack(dir string) ([]string, error) {
	if err := os.WriteFile(filepath.Join(dir, header), []byte(abi.VerbsHeader()), 0o644); err != nil {
		return nil, err
	}
	var names []string
	err := fs.WalkDir(sources, "src", func(name string, d fs.DirEntry, err error) error {
		rel := strings.TrimPrefix(strings.TrimPrefix(name, "src"), "/")
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return os.MkdirAll(filepath.Join(dir, rel), 0o755)
		}
		data, err := sources.ReadFile(name)
		if err != nil {
			return err
		}
		names = append(names, rel)
		return os.WriteFile(filepath.Join(dir, rel), data, 0o644)
	})
	return names, err
}

// replace puts data into the file final by way of the file temporary, so that final is always whole.
func replace(temporary, final string, data []byte) error {
	if err := os.WriteFile(temporary, data, 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, final)
}
