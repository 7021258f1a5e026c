package ibvtest_test

import (
	"bytes"
	"cmp"
	"debug/elf"
	"fmt"
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
			for _, version := range []string{"44", "65"} {
				got, err := values(t, cc, "#define IBVTEST_RDMA_CORE "+version+"\n#include \"verbs_abi.h\"", exprs)
				if err != nil {
					t.Fatal(err)
				}
				for i, e := range exprs {
					if got[i] != want[i] {
						t.Errorf("rdma-core %s: %s is %d, in %s %d", version, e, int64(got[i]), theirs, int64(want[i]))
					}
				}
			}
		})
	}
}

// verbs_flow.c has layouts of its own.
func TestFlowSpecLayoutsEqualTheHeader(t *testing.T) {
	need.Header(t, "infiniband/verbs.h")
	need.Tool(t, "gcc")
	data, err := os.ReadFile("src/verbs_flow.c")
	if err != nil {
		t.Fatal(err)
	}
	structs := map[string]string{"TCP": "tcp_udp", "UDP": "tcp_udp", "VXLAN_TUNNEL": "tunnel", "ACTION_HANDLE": "action_handle", "ACTION_COUNT": "counter_action"}
	first := map[string]string{"ACTION_TAG": "tag_id", "ACTION_HANDLE": "action", "ACTION_COUNT": "counters"}
	var exprs, have []string
	for _, m := range regexp.MustCompile(`\{(?:IB_FLOW_SPEC_)?(\w+), (?:IB_FLOW_SPEC_)\w+, (\d+), (\d+), (\d+)\}`).FindAllStringSubmatch(string(data), -1) {
		kind, at := "struct ibv_flow_spec_"+cmp.Or(structs[m[1]], strings.ToLower(m[1])), cmp.Or(first[m[1]], "val")
		exprs, have = append(exprs, "sizeof("+kind+")"), append(have, m[2])
		switch {
		case m[1] == "ACTION_DROP":
			continue
		case m[4] != "0":
			exprs = append(exprs, "sizeof((("+kind+" *)0)->val)", "offsetof("+kind+", mask) - offsetof("+kind+", val)")
			have = append(have, m[4], m[4])
		}
		exprs, have = append(exprs, "offsetof("+kind+", "+at+")"), append(have, m[3])
	}
	want, err := values(t, "gcc", "#include <infiniband/verbs.h>", exprs)
	if err != nil || len(exprs) != 47 {
		t.Fatal(len(exprs), err)
	}
	for i, e := range exprs {
		if have[i] != fmt.Sprint(want[i]) {
			t.Errorf("%s is %s, in the header %d", e, have[i], want[i])
		}
	}
}

// Each symbol must have the version of the distribution's library.
func TestBuildsExportTheirSymbolVersions(t *testing.T) {
	libs := libraries(t, "strict", "-Werror")
	for _, tt := range []struct {
		path    string
		last    int
		symbols int
	}{{libs.Verbs, 18, 36}, {libs.Verbs44, 14, 26}} {
		have := versions(t, tt.path)
		if len(have) != tt.symbols {
			t.Errorf("%s has %d symbols, want %d: %v", tt.path, len(have), tt.symbols, have)
		}
		f, err := elf.Open(tt.path)
		if err != nil {
			t.Fatal(err)
		}
		defined, err := f.DynamicVersions()
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, v := range defined {
			if strings.HasPrefix(v.Name, "IBVERBS_") {
				names = append(names, v.Name)
			}
		}
		want := []string{"IBVERBS_1.0", "IBVERBS_1.1"}
		for i := 5; i <= tt.last; i++ {
			want = append(want, fmt.Sprintf("IBVERBS_1.%d", i))
		}
		if !slices.Equal(names, want) {
			t.Errorf("%s defines %q, want %q", tt.path, names, want)
		}
	}
	need.Header(t, "infiniband/verbs.h") // its package brings the library
	found, err := filepath.Glob("/usr/lib/*/libibverbs.so.1")
	if err != nil || len(found) == 0 {
		t.Fatalf("the distribution's libibverbs.so.1: %q, %v", found, err)
	}
	theirs := versions(t, found[0])
	for name, version := range versions(t, libs.Verbs44) {
		if version != "IBVTEST_PRIVATE_1" && theirs[name] != version {
			t.Errorf("%s@%s is %q in %s", name, version, theirs[name], found[0])
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
