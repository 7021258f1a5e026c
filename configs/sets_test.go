package configs_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flowtally/flowtally/configs"
	"github.com/flowtally/flowtally/dataplane"
)

func TestListsOfYAMLAreSets(t *testing.T) {
	for _, c := range []struct{ yaml, text string }{
		{"tcp dport {22, 80}", "tcp dport {22, 80}"},
		{"tcp dport != {22, 80} flags {syn, syn|ack}", "tcp dport != {22, 80} flags {syn, syn|ack}"},
		{"'tcp dport {22, 80}'", "tcp dport {22, 80}"},
		{"{tcp: {dport: [80, 22, 8000-8080]}}", "tcp dport {22, 80, 8000-8080}"},
		{"{tcp: {dport: {80, 22}}}", "tcp dport {22, 80}"},
		{"{tcp: {dport: '22,80'}}", "tcp dport {22, 80}"},
		{"{tcp: {dport: '!= 80', flags: [syn, 'syn|ack']}}", "tcp dport != 80 flags {syn, syn|ack}"},
		{"{tcp: {dport: '!= {80, 22}'}}", "tcp dport != {22, 80}"},
		{"{ipv4: {src: 10.0.0.5-10.0.0.9, dst: [10.0.0.0/8, 192.0.2.1]}}", "ipv4 src 10.0.0.5-10.0.0.9 dst {10.0.0.0/8, 192.0.2.1}"},
		{"{vlan: [{id: [1, 3]}, {id: '!= 7'}]}", "vlan id {1, 3} vlan id != 7"},
		{"{gre: {inner: {udp: {sport: [1, 3]}}}}", "gre inner udp sport {1, 3}"},
		{"{gre: {inner: udp sport != 3}}", "gre inner udp sport != 3"},
		{"\n      tcp:\n        dport:\n          - 22\n          - 80", "tcp dport {22, 80}"},
	} {
		cfg := parse(t, "backend: sim\nflows:\n  - name: x\n    match: "+c.yaml+"\n")
		if diff := cmp.Diff(match(t, c.text), cfg.Flows[0].Match); diff != "" {
			t.Errorf("%s is not %s (-want +got):\n%s", c.yaml, c.text, diff)
		}
		text, err := configs.Marshal(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(cfg, parse(t, string(text))); diff != "" {
			t.Errorf("%s is written as\n%s\n(-read +again):\n%s", c.yaml, text, diff)
		}
	}
}

// A mistake in a set is marked at the value, and what YAML would take for something else is refused.
func TestMistakesInSetsAreMarkedAtTheValue(t *testing.T) {
	for _, c := range []struct {
		yaml string
		want []string // "line:col" of the match's first line, then parts of the message, split by |
	}{
		{"tcp dport {22, 8x0}", []string{`4:27|value 2 of the set|"8x0"`}},
		{"tcp dport {22,8x0,9x}", []string{`4:26|value 2 of the set|"8x0"`, `4:30|value 3 of the set|"9x"`}},
		{"'tcp dport {22,8x0}'", []string{`4:27|value 2 of the set`}},
		{"tcp dport {22, 80", []string{`4:22|the set has no end|close it with }`}},
		{"{tcp: {dport: [22, 8x0]}}", []string{`4:31|value 2 of the set|"8x0"`}},
		{"{tcp: {dport: []}}", []string{`4:26|the set is empty`}},
		{"{tcp: {dport: '22,8x0'}}", []string{`4:30|value 2 of the set`}},
		{"{tcp: {dport: {22, 8x0}}}", []string{`4:31|value 2 of the set`}},
		{"{tcp: {dport: {22: 80}}}", []string{`4:26|is one value, not a mapping`}},
		{"{tcp: {dport: != 80}}", []string{`4:26|the tag != is not read here|quote it, as "!= 80"`}},
		{"{tcp: {dport: !=80}}", []string{`4:26|the tag !=80 is not read here|quote it`}},
		{"{tcp: {dport: !={80, 443}}}", nil},
		{"{tcp: {dport: [!= 80, 22]}}", []string{`4:27|the tag != is not read here|quote it`}},
		{"\n      tcp:\n        dport: != 80", []string{`6:16|quote it`}},
		{"{tcp: {dport: 22,80}}", []string{`4:29|tcp has no field "80"|write several values as a list: [22, 80]`}},
		{"{tcp: {dport: [[22], 80]}}", []string{`4:27|is one value, not a list`}},
		{"{tcp: {dport: [22, '']}}", []string{`4:31|dport[1] has no value|leave the element out`}},
		{"\n      tcp:\n        dport:\n          - 22\n          -", []string{`8:12|dport[1] has no value`}},
		{"{tcp: {flags: [syn, 'syn,ack']}}", []string{`4:32|"syn,ack" is not one value|"|" joins TCP flags`}},
		{"{tcp: {dport: [22, '}']}}", []string{`4:31|"}" is not one value`}},
		{"{tcp: {dport: [22, '80 81']}}", []string{`4:31|"80 81" is not one value`}},
		{"{tcp: {dport: [1, 2], sport: '!= 0-65535'}}", []string{`4:42|excludes every value`}},
	} {
		_, err := configs.Parse("test.yaml", []byte("backend: sim\nflows:\n  - name: x\n    match: "+c.yaml+"\n"))
		var wrong *configs.Error
		if !errors.As(err, &wrong) || !errors.Is(err, dataplane.ErrInvalid) {
			t.Errorf("%s: %v, want mistakes", c.yaml, err)
			continue
		}
		if c.want == nil {
			continue // YAML itself refuses it
		}
		if len(wrong.Problems) != len(c.want) {
			t.Errorf("%s: %d mistakes, want %d:\n%v", c.yaml, len(wrong.Problems), len(c.want), err)
			continue
		}
		for i, p := range wrong.Problems {
			parts := strings.Split(c.want[i], "|")
			if at := fmt.Sprintf("%d:%d", p.Line, p.Col); at != parts[0] {
				t.Errorf("%s: mistake %d is at %s, want %s:\n%v", c.yaml, i, at, parts[0], err)
			}
			for _, part := range parts[1:] {
				if !strings.Contains(p.Msg+"; "+p.Suggestion, part) {
					t.Errorf("%s: %q; %q does not say %q", c.yaml, p.Msg, p.Suggestion, part)
				}
			}
		}
	}
}
