package configs_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/configs"
)

// A file takes memory in proportion to its length, whatever it repeats. The parse and the text of its mistakes count.
func TestHostileFilesTakeMemoryInProportion(t *testing.T) {
	const length = 1 << 20
	many := func(head, each, end string) string {
		var b strings.Builder
		b.WriteString(head)
		for i := 0; b.Len() < length; i++ {
			if strings.Contains(each, "%") {
				fmt.Fprintf(&b, each, i)
			} else {
				b.WriteString(each)
			}
		}
		return b.String() + end
	}
	const flow = "backend: sim\nflows:\n- name: a\n  match: any\n"
	for _, c := range []struct{ name, text, says string }{
		{"flows", many("backend: sim\nflows:\n", "- {name: f%06d, match: ipv4 dst 10.1.2.3}\n", ""), "<nil>"},
		{"labels on one line", many(flow+"  labels: {", "k%x: v,", "}\n"), "values in"},
		{"labels", many(flow+"  labels:\n", "    k%x: v\n", ""), "bytes together, more than 255"},
		{"long labels on one line", many(flow+"  labels: {", "k%x: a value of some length,", "}\n"), "bytes together, more than 255"},
		{"wrong flows on one line", many("backend: sim\nflows: [", "a,", "]\n"), "values in"},
		{"wrong flows of some length on one line", many("backend: sim\nflows: [", "aaaaa,", "]\n"), "is a mapping of fields"},
		{"empty flows", many("backend: sim\nflows:\n", "-\n", ""), "values in"},
		{"nameless flows", many("backend: sim\nflows:\n", "- {}\n", ""), "values in"},
		{"wrong fields", many("backend: sim\n", "k%x: 1\n", ""), "has no field"},
		{"interfaces", many("interfaces: [", "%d,", "]\n"), "at most 1024"},
		{"long interfaces", many("interfaces: [", "eth%05d,", "]\n"), ""},
		{"words of a match", many("backend: sim\nflows:\n- name: a\n  match: ", "tcp ", "\n"), ""},
		{"a long word", many("backend: sim\nflows:\n- name: a\n  match: ", "aaaaaaaa", "\n"), ""},
		{"a long name", many("backend: sim\nflows:\n- match: any\n  name: ", "aaaaaaaa", "\n"), ""},
		{"tags of a match", many("backend: sim\nflows:\n- name: a\n  match:\n    vlan:\n", "    - {id: 1}\n", ""), ""},
		{"queue pairs", many("queue_pairs:\n", "- {name: q%d}\n", ""), ""},
		{"operations", many("queue_pairs:\n- name: q\n  device: d\n  counters:\n  - name: k\n    operations:\n", "    - send\n", ""), ""},
		{"ways beside", many("backend: sim\nxdp:\n  beside:\n", "  - tcx\n", ""), ""},
		{"words", many("words:\n", "- words-%d\n", ""), ""},
		{"elements", many("backend: sim\nsets:\n  a:\n    elements:\n", "    - 10.0.0.1\n", ""), "<nil>"},
		{"wrong elements", many("backend: sim\nsets:\n  a:\n    elements:\n", "    - 10.0.0.x\n", ""), "is no address"},
		{"wide ranges", many("backend: sim\nsets:\n  a:\n    elements:\n", "    - ::1-ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe\n", ""), "more than 1048576 elements"},
		{"sets", many("backend: sim\nsets:\n", "  s%x:\n", ""), "more than 64"},
		{"nesting", many("flows: ", "[", ""), ""},
		{"anchors", many("flows:\n", "- &a a\n", ""), ""},
		{"comments", many("backend: sim\n", "# a comment\n", ""), "<nil>"},
		{"empty lines", many("backend: sim\n", "\n", ""), "<nil>"},
		{"bytes", many("backend: sim\n", "\x00", ""), "no text"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := configs.Parse("f", []byte(c.text))
			text := fmt.Sprint(err)
			runtime.ReadMemStats(&after)
			used := after.TotalAlloc - before.TotalAlloc
			t.Logf("%.0f bytes for each byte; %.200s", float64(used)/float64(len(c.text)), text)
			if !strings.Contains(text, c.says) {
				t.Errorf("%.300s, want %q", text, c.says)
			}
			if used > 24<<20+224*uint64(len(c.text)) {
				t.Errorf("%d bytes took %d, freed ones too", len(c.text), used)
			}
		})
	}
}
