package ibvtest_test

import (
	"bytes"
	"debug/elf"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
)

var (
	abiStruct = regexp.MustCompile(`(?ms)^(?:struct|union) (ibv_\w+) \{\n(.*?)^\};`)
	abiInner  = regexp.MustCompile(`(?s)(?:struct|union) \{\n(.*?)\} (\w+);`)
	abiEnum   = regexp.MustCompile(`\b(IBV_[A-Z0-9_]+)\b`)
	abiField  = regexp.MustCompile(`(\w+)(?:\[\w+\])?$`)
	abiCall   = regexp.MustCompile(`\(\*(\w+)\)\(`)
	comment   = regexp.MustCompile(`(?s)/\*.*?\*/`)
	// Additions to rdma-core since 65: checked if the headers are that new.
	abiNew = regexp.MustCompile(`COMP_CNTR|comp_cntr`)
)

// expressions are the C expressions that both headers must give one value: every size,
// offset and constant that ours declare.
func expressions(t *testing.T, skip *regexp.Regexp) []string {
	t.Helper()
	var all []string
	data, err := os.ReadFile("../internal/abi/verbs_abi.h")
	if err != nil {
		t.Fatal(err)
	}
	text := comment.ReplaceAllString(string(data), "")
	all = append(all, abiEnum.FindAllString(text, -1)...)
	for _, m := range abiStruct.FindAllStringSubmatch(text, -1) {
		if m[1] == "ibv_send_wr" {
			continue // its unions are nested: see sendWR
		}
		kind := "struct " + m[1]
		if m[1] == "ibv_gid" {
			kind = "union " + m[1]
		}
		all = append(all, "sizeof("+kind+")")
		body := m[2]
		for _, in := range abiInner.FindAllStringSubmatch(body, -1) {
			all = append(all, offsets(kind, in[2]+".", in[1])...)
		}
		all = append(all, offsets(kind, "", abiInner.ReplaceAllString(body, "int $2;\n"))...)
	}
	all = slices.DeleteFunc(all, func(s string) bool {
		return skip != nil && skip.MatchString(s) ||
			strings.Contains(s, "_compat") || // slots that nothing calls, grouped in ours
			strings.Contains(s, "odp_caps.") // one level less in ours
	})
	slices.Sort(all)
	return slices.Compact(all)
}

func offsets(kind, prefix, body string) []string {
	var all []string
	for _, declaration := range strings.Split(body, ";") {
		if m := abiCall.FindStringSubmatch(declaration); m != nil {
			all = append(all, fmt.Sprintf("offsetof(%s, %s%s)", kind, prefix, m[1]))
			continue
		}
		for _, d := range strings.Split(declaration, ",") {
			if m := abiField.FindStringSubmatch(strings.TrimSpace(d)); m != nil {
				all = append(all, fmt.Sprintf("offsetof(%s, %s%s)", kind, prefix, m[1]))
			}
		}
	}
	return all
}

// slots are the members of struct verbs_context, which grows at its head: programs rely on their
// distances from its end (sz).
var slots = []string{"query_port", "read_counters", "attach_counters_point_flow", "create_counters", "destroy_counters",
	"create_cq_ex", "priv", "query_device_ex", "ibv_destroy_flow", "ibv_create_flow", "create_qp_ex", "close_xrcd", "sz", "context"}

// sendWR are the members of struct ibv_send_wr.
var sendWR = []string{"wr_id", "next", "sg_list", "num_sge", "opcode", "send_flags", "imm_data", "invalidate_rkey",
	"wr.rdma.remote_addr", "wr.rdma.rkey",
	"wr.atomic.remote_addr", "wr.atomic.compare_add", "wr.atomic.swap", "wr.atomic.rkey",
	"wr.ud.ah", "wr.ud.remote_qpn", "wr.ud.remote_qkey",
	"qp_type.xrc.remote_srqn", "bind_mw.mw", "bind_mw.rkey", "bind_mw.bind_info.addr", "tso.hdr", "tso.hdr_sz", "tso.mss"}

// values compiles the expressions for one architecture with one header and reads them out
// of the object file, so that nothing has to run.
func values(t *testing.T, cc, include string, exprs []string) ([]uint64, error) {
	t.Helper()
	var src bytes.Buffer
	fmt.Fprintf(&src, "#include <stddef.h>\n#include <stdint.h>\n%s\n", include)
	fmt.Fprintf(&src, "__attribute__((section(\"abi\"))) const uint64_t table[] = {\n")
	for _, e := range exprs {
		fmt.Fprintf(&src, "(uint64_t)(int64_t)(%s),\n", e)
	}
	fmt.Fprintf(&src, "};\n")
	object := filepath.Join(t.TempDir(), "abi.o")
	cmd := exec.Command(cc, "-std=gnu11", "-Wno-all", "-Isrc", "-I../internal/abi", "-c", "-x", "c", "-", "-o", object)
	cmd.Stdin = &src
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", cc, err, out)
	}
	f, err := elf.Open(object)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := f.Section("abi").Data()
	if err != nil {
		return nil, err
	}
	v := make([]uint64, len(exprs))
	for i := range v {
		v[i] = f.ByteOrder.Uint64(data[8*i:])
	}
	return v, nil
}

// Every size, offset and constant of our declarations is compared with the distribution's headers,
// on both architectures.
func TestABIEqualsTheHeaders(t *testing.T) {
	need.Header(t, "infiniband/verbs.h")
	theirs, err := filepath.Abs("/usr/include/infiniband/verbs.h")
	if err != nil {
		t.Fatal(err)
	}
	header, err := os.ReadFile(theirs)
	if err != nil {
		t.Fatal(err)
	}
	var skip *regexp.Regexp
	if !bytes.Contains(header, []byte("IBV_COMP_CNTR_TYPE_WRS")) {
		skip = abiNew
	}
	exprs := expressions(t, skip)
	if len(exprs) < 300 {
		t.Fatalf("only %d expressions were found in the headers", len(exprs))
	}
	for _, s := range slots {
		exprs = append(exprs, "sizeof(struct verbs_context) - offsetof(struct verbs_context, "+s+")")
	}
	exprs = append(exprs, "sizeof(struct ibv_send_wr)")
	for _, s := range sendWR {
		exprs = append(exprs, "offsetof(struct ibv_send_wr, "+s+")")
	}
	for _, cc := range []string{"gcc", "aarch64-linux-gnu-gcc"} {
		t.Run(cc, func(t *testing.T) {
			need.Tool(t, cc)
			want, err := values(t, cc, `#include "`+theirs+`"`, exprs)
			if err != nil {
				t.Fatal(err)
			}
			got, err := values(t, cc, `#include "verbs_abi.h"`, exprs)
			if err != nil {
				t.Fatal(err)
			}
			for i, e := range exprs {
				if got[i] != want[i] {
					t.Errorf("%s is %d, in %s %d", e, int64(got[i]), theirs, int64(want[i]))
				}
			}
		})
	}
}

// A symbol that a library of the distribution has, too, must have the version that it has there: dlvsym finds it first in
// the shim.
func TestShimsExportTheSymbolVersionsOfTheLibraries(t *testing.T) {
	libs := libraries(t, "strict", "-Werror")
	need.RDMACore(t)
	theirs := make(map[string]string)
	for _, soname := range []string{"libibverbs.so.1", "libmlx5.so.1", "libefa.so.1"} {
		found, err := filepath.Glob("/usr/lib/*/" + soname)
		if err != nil || len(found) == 0 {
			t.Fatalf("the distribution's %s: %q, %v", soname, found, err)
		}
		maps.Copy(theirs, versions(t, found[0]))
	}
	for path, symbols := range map[string]int{libs.Shim: 18, libs.Shim61: 1} {
		have := versions(t, path)
		if len(have) != symbols {
			t.Errorf("%s has %d symbols, want %d: %v", path, len(have), symbols, have)
		}
		for name, version := range have {
			if v, ok := theirs[name]; ok && v != version {
				t.Errorf("%s has %s@%s, the library %s", path, name, version, v)
			}
		}
	}
}

// versions are the functions that a library exports, with their default versions.
func versions(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	m := make(map[string]string)
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF && elf.ST_TYPE(s.Info) == elf.STT_FUNC && !s.VersionIndex.IsHidden() {
			m[s.Name] = s.Version
		}
	}
	return m
}
