package ibv

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// The ABI tests compare this package's declarations of C types with the headers of rdma-core, for
// amd64 and for arm64. The headers are the distribution's own and, with the tag releases, the
// headers of other suites. No program runs: a compiler writes sizes, offsets, constants and whole
// structs into the data of an object file, and the test reads them there. The other architecture is
// therefore tested in the same way.
// abiTarget is a compiler for a supported architecture, and its headers.
type abiTarget struct {
	name string
	cc   string
	headers
}

// headers are the headers of one release of rdma-core.
type headers struct {
	name string
	dir  string // "": where the compiler looks
}

// moreHeaders returns those that are compared with beside the installed ones. Only the tests with the tag releases
// have any.
var moreHeaders func(t *testing.T) []headers

// eachTarget runs test for both architectures (the native compiler for the one it is
// for, the cross compiler for the other) and for each release of the headers.
func eachTarget(t *testing.T, test func(t *testing.T, cc abiTarget)) {
	all := []headers{{name: "installed"}}
	if moreHeaders != nil {
		all = append(all, moreHeaders(t)...)
	}
	for _, cc := range []abiTarget{{name: "amd64", cc: "x86_64-linux-gnu-gcc"}, {name: "arm64", cc: "aarch64-linux-gnu-gcc"}} {
		if cc.name == runtime.GOARCH {
			cc.cc = "gcc"
		}
		for _, cc.headers = range all {
			t.Run(cc.name+"/"+cc.headers.name, func(t *testing.T) {
				if cc.dir == "" {
					need.Header(t, "infiniband/verbs.h", "infiniband/mlx5dv.h", "infiniband/efadv.h")
				}
				need.Tool(t, cc.cc)
				test(t, cc)
			})
		}
	}
}

// command runs the compiler. The installed headers of libibverbs-dev are the same files for every
// architecture. Their directory comes last, so that the compiler's own libc headers are found
// first.
func (cc abiTarget) command(args ...string) *exec.Cmd {
	args = append([]string{"-std=gnu11"}, args...)
	if cc.dir != "" {
		args = append(args, "-isystem", cc.dir)
	}
	return exec.Command(cc.cc, append(args, "-idirafter", "/usr/include")...)
}

// The headers, as a translation unit includes them. Both name the same structs, so
// they never meet in one.
func ourHeaders(t *testing.T) string {
	return fmt.Sprintf("#include %q\n#include %q\n", abs(t, "mlx5_abi.h"), abs(t, "efa_abi.h"))
}

const theirHeaders = "#include <infiniband/verbs.h>\n#include <infiniband/mlx5dv.h>\n#include <infiniband/efadv.h>\n"

func abs(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// data compiles source and returns the contents of the object called symbol.
func (cc abiTarget) data(t *testing.T, source, symbol string) []byte {
	t.Helper()
	dir := t.TempDir()
	c, o := filepath.Join(dir, "abi.c"), filepath.Join(dir, "abi.o")
	if err := os.WriteFile(c, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := cc.command("-Wall", "-Werror", "-fno-common", "-c", "-o", o, c)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s\n%s", cc.cc, err, out, source)
	}
	f, err := elf.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if s.Name != symbol {
			continue
		}
		section := f.Sections[s.Section]
		if section.Type == elf.SHT_NOBITS { // all zeroes
			return make([]byte, s.Size)
		}
		b, err := section.Data()
		if err != nil {
			t.Fatal(err)
		}
		return b[s.Value:][:s.Size]
	}
	t.Fatalf("no object %s in\n%s", symbol, source)
	return nil
}

// values evaluates constant expressions of C.
func (cc abiTarget) values(t *testing.T, headers string, expressions []string) []int64 {
	t.Helper()
	var c strings.Builder
	fmt.Fprintf(&c, "%s#include <stddef.h>\nconst long long values[] = {\n", headers)
	for _, e := range expressions {
		fmt.Fprintf(&c, "\t(long long)(%s),\n", e)
	}
	c.WriteString("};\n")
	b := cc.data(t, c.String(), "values")
	list := make([]int64, len(expressions))
	for i := range list { // both targets are little-endian
		list[i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return list
}

// missing finds the expressions unknown to the headers. It compiles each one alone.
func (cc abiTarget) missing(t *testing.T, headers string, expressions []string) map[string]bool {
	t.Helper()
	missing := make(map[string]bool)
	for _, e := range expressions {
		c := fmt.Sprintf("%s#include <stddef.h>\nconst long long value = (long long)(%s);\n", headers, e)
		cmd := cc.command("-fsyntax-only", "-x", "c", "-")
		cmd.Stdin = strings.NewReader(c)
		missing[e] = cmd.Run() != nil
	}
	return missing
}
