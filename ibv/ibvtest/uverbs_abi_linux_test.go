package ibvtest_test

import (
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
	uverbsStruct = regexp.MustCompile(`(?ms)^struct (\w+) \{\n(.*?)^\};`)
	uverbsInner  = regexp.MustCompile(`(?s)(?:struct|union) \{.*?\} (\w+);`)
	uverbsEnum   = regexp.MustCompile(`\b((?:UVERBS|IB_UVERBS|IB_USER_VERBS|RDMA_DRIVER|MLX5|EFA)_[A-Z0-9_]+)\b(?:\s*=|,|\s*\})`)
	uverbsField  = regexp.MustCompile(`(\w+)(?:\[\w+\])?$`)
	// Names that the kernel's headers declare in another shape, or not at all. TestEFAABIEqualsRDMACore has the descriptors of EFA, and its
	// structures that have grown. Of the response to a query of mlx5 only the beginning is declared.
	uverbsOther = regexp.MustCompile(`per_transport_caps|IB_UVERBS_MAJOR|RDMA_VERBS_IOCTL|attr_data\.|efa_io|EFA_IO|ib_uverbs_flow_spec_action|sizeof\(struct (?:mlx5_ib_query_device_resp|efa_ibv_create_qp)\)`)
)

// Each size, offset and constant of the kernel's interface in src/uverbs is compared with the
// headers of the machine's kernel package. Names newer than these headers are counted and printed.
func TestUverbsABIEqualsTheKernelsHeaders(t *testing.T) {
	need.Tool(t, "gcc")
	const core = "#include <rdma/rdma_user_ioctl_cmds.h>\n#include <rdma/ib_user_ioctl_cmds.h>\n#include <rdma/ib_user_ioctl_verbs.h>\n#include <rdma/ib_user_verbs.h>\n"
	for _, c := range []struct {
		name    string
		ours    []string
		headers string
		least   int // compared expressions
	}{
		{"core", []string{"uverbs_abi.h", "uverbs_abi_cmd.h"}, core, 400},
		{"mlx5", []string{"mlx5_abi_kernel.h", "mlx5_abi_flow.h"}, core + "#include <rdma/mlx5-abi.h>\n#include <rdma/mlx5_user_ioctl_cmds.h>\n#include <rdma/mlx5_user_ioctl_verbs.h>", 150},
		{"efa", []string{"efa_abi_kernel.h"}, core + "#include <rdma/efa-abi.h>", 40},
	} {
		t.Run(c.name, func(t *testing.T) { compareUverbs(t, c.ours, c.headers, c.least) })
	}
}

func compareUverbs(t *testing.T, files []string, headers string, least int) {
	need.Header(t, "rdma/ib_user_ioctl_cmds.h")
	var all []string
	include := ""
	for _, name := range files {
		include += "#include \"" + name + "\"\n"
		data, err := os.ReadFile(filepath.Join("src/uverbs", name))
		if err != nil {
			t.Fatal(err)
		}
		text := comment.ReplaceAllString(string(data), "")
		for _, m := range uverbsEnum.FindAllStringSubmatch(text, -1) {
			all = append(all, m[1])
		}
		for _, m := range uverbsStruct.FindAllStringSubmatch(text, -1) {
			all = append(all, "sizeof(struct "+m[1]+")")
			for _, d := range strings.Split(uverbsInner.ReplaceAllString(m[2], "int $1;"), ";") {
				if f := uverbsField.FindStringSubmatch(strings.TrimSpace(d)); f != nil {
					all = append(all, fmt.Sprintf("offsetof(struct %s, %s)", m[1], f[1]))
				}
			}
		}
	}
	all = slices.DeleteFunc(all, uverbsOther.MatchString)
	slices.Sort(all)
	all = slices.Compact(all)
	ours, unknown := evaluate(t, []string{"-Isrc/uverbs"}, include, all)
	if len(unknown) > 0 {
		t.Fatalf("our own headers do not have %v", unknown)
	}
	theirs, newer := evaluate(t, nil, headers, all)
	compared := 0
	for _, e := range all {
		if slices.Contains(newer, e) {
			continue
		}
		compared++
		if ours[e] != theirs[e] {
			t.Errorf("%s is %s, in the kernel's headers %s", e, ours[e], theirs[e])
		}
	}
	t.Logf("%d expressions agree; not in the headers: %v", compared, newer)
	if compared < least {
		t.Errorf("only %d expressions of %d were compared", compared, len(all))
	}
}

// evaluate returns the values of C expressions, and those that do not compile.
func evaluate(t *testing.T, flags []string, include string, expressions []string) (map[string]string, []string) {
	t.Helper()
	dir := t.TempDir()
	var unknown []string
	for range 20 {
		var src strings.Builder
		fmt.Fprintf(&src, "#include <stddef.h>\n#include <stdio.h>\n%s\nint main(void) {\n", include)
		first := strings.Count(src.String(), "\n")
		var asked []string
		for _, e := range expressions {
			if !slices.Contains(unknown, e) {
				fmt.Fprintf(&src, "printf(\"%%lld\\n\", (long long)(%s));\n", e)
				asked = append(asked, e)
			}
		}
		src.WriteString("}\n")
		file, program := filepath.Join(dir, "e.c"), filepath.Join(dir, "e")
		if err := os.WriteFile(file, []byte(src.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		args := append(slices.Clone(flags), "-w", "-fmax-errors=0", "-o", program, file)
		out, err := exec.Command("gcc", args...).CombinedOutput()
		if err != nil {
			at := regexp.MustCompile(`e\.c:(\d+):\d+: error`).FindAllStringSubmatch(string(out), -1)
			if len(at) == 0 {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, m := range at {
				var line int
				fmt.Sscan(m[1], &line)
				if e := asked[line-first-1]; !slices.Contains(unknown, e) {
					unknown = append(unknown, e)
				}
			}
			continue
		}
		result, err := exec.Command(program).Output()
		if err != nil {
			t.Fatal(err)
		}
		values := make(map[string]string)
		for i, v := range strings.Fields(string(result)) {
			values[asked[i]] = v
		}
		return values, unknown
	}
	t.Fatal("the expressions do not compile")
	return nil, nil
}
