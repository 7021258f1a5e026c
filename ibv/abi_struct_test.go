package ibv

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// cStruct is a struct or a union of one of our headers, with the members that have an offset. The
// members of an anonymous struct inside it count as its own.
type cStruct struct {
	kind, name string // "struct", "ibv_qp"
	members    []cMember
}

type cMember struct {
	name     string
	flexible bool // no size: type name[]
}

var (
	cComment = regexp.MustCompile(`(?s)/\*.*?\*/`)
	cHead    = regexp.MustCompile(`(?m)^(struct|union) (\w+) \{`)
	cFuncPtr = regexp.MustCompile(`\(\*(\w+)\)\(`)
	cName    = regexp.MustCompile(`(\w+)\s*(\[[^\]]*\])?$`)
)

// parseStructs reads the structs of a header. It understands only the style of our own headers.
func parseStructs(t *testing.T, file string) []cStruct {
	t.Helper()
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := cComment.ReplaceAllString(string(src), "")
	var list []cStruct
	for _, at := range cHead.FindAllStringSubmatchIndex(text, -1) {
		body, _ := braces(t, text[at[1]-1:])
		list = append(list, cStruct{text[at[2]:at[3]], text[at[4]:at[5]], parseMembers(t, body)})
	}
	return list
}

// braces splits text behind the brace that closes the first one.
func braces(t *testing.T, text string) (inside, rest string) {
	t.Helper()
	depth := 0
	for i, r := range text {
		switch r {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return text[1:i], text[i+1:]
			}
		}
	}
	t.Fatalf("no closing brace: %.60q", text)
	return "", ""
}

func parseMembers(t *testing.T, body string) []cMember {
	t.Helper()
	var list []cMember
	for body = strings.TrimSpace(body); body != ""; body = strings.TrimSpace(body) {
		var nested string
		end, open := strings.IndexByte(body, ';'), strings.IndexByte(body, '{')
		if end < 0 {
			t.Fatalf("no member: %.60q", body)
		}
		decl := body[:end]
		if open >= 0 && open < end {
			var rest string
			nested, rest = braces(t, body[open:])
			end = strings.IndexByte(rest, ';')
			decl, body = strings.TrimSpace(rest[:end]), rest[end+1:]
			if decl == "" {
				list = append(list, parseMembers(t, nested)...)
				continue
			}
		} else {
			body = body[end+1:]
		}
		if f := cFuncPtr.FindStringSubmatch(decl); f != nil {
			list = append(list, cMember{name: f[1]})
			continue
		}
		for part := range strings.SplitSeq(decl, ",") {
			m := cName.FindStringSubmatch(strings.TrimSpace(part))
			if m == nil {
				t.Fatalf("no name in %q", part)
			}
			list = append(list, cMember{m[1], m[2] == "[]"})
		}
	}
	return list
}

// newerThanHeaders are structs that rdma-core 44's headers lack or have in a shorter form, with the
// sizes and offsets that the compiler gives for rdma-core 65 (commit 691953d8:
// libibverbs/verbs.h:2129-2154, providers/efa/efadv.h, providers/mlx5/mlx5dv.h). If the
// distribution's headers have them, the test compares those too.
var newerThanHeaders = map[string]map[string]int64{
	"ibv_comp_cntr_caps": {
		"sizeof": 16, "max_value": 0, "max_counters": 8, "supported_qp_attach_ops": 12,
	},
	"ibv_comp_cntr":                {"sizeof": 16, "context": 0, "handle": 8},
	"ibv_comp_cntr_init_attr":      {"sizeof": 12, "comp_mask": 0, "type": 4, "flags": 8},
	"ibv_qp_attach_comp_cntr_attr": {"sizeof": 8, "comp_mask": 0, "op_mask": 4},
	"efadv_memory_location": {
		"sizeof": 32, "ptr": 0, "dmabuf": 8, "dmabuf.offset": 8, "dmabuf.fd": 16, "dmabuf.reserved": 20, "type": 24, "reserved": 25,
	},
	"efadv_comp_cntr_init_attr": {
		"sizeof": 80, "comp_mask": 0, "flags": 8, "reserved": 12, "comp_cntr_ext_mem": 16, "err_cntr_ext_mem": 48,
	},
	"ft_flow_action_attr_60": {
		"sizeof": 24, "type": 0, "obj": 8, "bulk_obj": 8, "bulk_obj.offset": 16,
	},
}

// grow are structs whose length the library learns from a mask, an element size or the struct's
// size, so later headers may add to their end.
var grow = map[string]bool{
	"mlx5dv_flow_matcher_attr": true, "mlx5dv_flow_action_attr": true, "mlx5dv_obj": true, "mlx5dv_context_attr": true,
	"ibv_port_attr": true, "verbs_context": true, "efadv_qp_init_attr": true, "ibv_qp_ex": true,
}

// place is where a member is in its struct, in C: from the end in verbs_context, to which later headers add
// at the beginning.
func place(s cStruct, m cMember) string {
	c := s.kind + " " + s.name
	if s.name == "verbs_context" {
		return fmt.Sprintf("sizeof(%s) - offsetof(%s, %s)", c, c, m.name)
	}
	return fmt.Sprintf("offsetof(%s, %s)", c, m.name)
}

// The compiler reports the offset and size of each member, and the size of each struct.
func TestABIStructsEqualTheHeaders(t *testing.T) {
	structs := slices.Concat(parseStructs(t, "internal/abi/verbs_abi.h"), parseStructs(t, "mlx5_abi.h"), parseStructs(t, "efa_abi.h"))
	if len(structs) < 38 {
		t.Fatalf("only %d structs were found", len(structs))
	}
	eachTarget(t, func(t *testing.T, cc abiTarget) {
		var expressions []string
		for _, s := range structs {
			if newerThanHeaders[s.name] != nil {
				continue
			}
			c := s.kind + " " + s.name
			expressions = append(expressions, fmt.Sprintf("sizeof(%s)", c))
			for _, m := range s.members {
				expressions = append(expressions, place(s, m))
				if !m.flexible {
					expressions = append(expressions, fmt.Sprintf("sizeof(((%s *)0)->%s)", c, m.name))
				}
			}
		}
		ours, theirs := cc.values(t, ourHeaders(t), expressions), cc.values(t, theirHeaders, expressions)
		for i, e := range expressions {
			name := strings.TrimSuffix(strings.TrimPrefix(e, "sizeof(struct "), ")")
			if ours[i] != theirs[i] && !(grow[name] && ours[i] < theirs[i]) {
				t.Errorf("%s is %d, the distribution says %d", e, ours[i], theirs[i])
			}
		}
		t.Logf("%d sizes and offsets of %d structs", len(expressions), len(structs))

		for name, want := range newerThanHeaders {
			var names, expressions []string
			for member := range want {
				names = append(names, member)
				e := fmt.Sprintf("offsetof(struct %s, %s)", name, member)
				if member == "sizeof" {
					e = fmt.Sprintf("sizeof(struct %s)", name)
				}
				expressions = append(expressions, e)
			}
			ours := cc.values(t, ourHeaders(t), expressions)
			whole := fmt.Sprintf("sizeof(struct %s)", name)
			unknown := strings.HasPrefix(name, "ft_") || cc.missing(t, theirHeaders, []string{whole})[whole]
			for i, got := range ours {
				if got != want[names[i]] {
					t.Errorf("%s is %d, want %d", expressions[i], got, want[names[i]])
				}
				if unknown {
					continue
				}
				if theirs := cc.values(t, theirHeaders, expressions[i:i+1]); theirs[0] != got {
					t.Errorf("%s is %d, the distribution says %d", expressions[i], got, theirs[0])
				}
			}
		}
	})
}

// A member overlooked by the parser of the header would escape the comparison above.
func TestABIParserOverlooksNoMember(t *testing.T) {
	file := t.TempDir() + "/a.h"
	text := "struct a {\n\tint x, *y; /* z; */\n\tvoid *(*f)(int, struct b *);\n\tunion {\n\t\tint u;\n\t\tstruct {\n\t\t\tint v;\n\t\t} w;\n\t};\n\tchar s[4], t[];\n};\nunion b {\n\tint q;\n};\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(parseStructs(t, file))
	want := "[{struct a [{x false} {y false} {f false} {u false} {w false} {s false} {t true}]} {union b [{q false}]}]"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
