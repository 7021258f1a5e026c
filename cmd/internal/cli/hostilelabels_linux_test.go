package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/cmd/internal/view"
)

// Each counter must also be in exactly one sum, whatever its labels.
func TestHostileLabelsPrintNoControlCharacter(t *testing.T) {
	long := strings.Repeat("k", 124)
	placeholder := "key=" + strings.Repeat("v", 249) // with its NUL the whole space of an entry but one byte
	for what, labels := range map[string]string{
		"CSI in the value": "team=\x1b[2J\x1b]0;owned\a",
		"CSI in the key":   "\x1b[2J=x\x00team=ops",
		"C1":               "team=\xc2\x9b2J",
		"not UTF-8":        "team=\x9b2J\xff",
		"lines":            "team=ops\nrest  flow  1,000,000\r",
		"bidi":             "team=\u202ebew\u2066",
		"no key":           "=ops\x00=\x00team=ops",
		"no value":         "team\x00team=",
		"duplicate keys":   "team=a\x00team=b\x00team=c",
		"unsorted":         "z=1\x00team=ops\x00a=2",
		"long":             long + "=" + long,
		"no end":           "team=" + strings.Repeat("e", 251),
	} {
		t.Run(what, func(t *testing.T) {
			path, w := webMirror(t)
			key, value, _ := strings.Cut(placeholder, "=")
			if err := w.add([]string{"placed", "flow", "7", "8", "sim", "l2", "label:" + key + "=" + value}); err != nil {
				t.Fatal(err)
			}
			w.publish(true)
			if err := w.w.Close(); err != nil {
				t.Fatal(err)
			}
			file, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			field := make([]byte, 256)
			copy(field, placeholder)
			at := bytes.Index(file, field)
			if at < 0 {
				t.Fatal("the entry's labels are not in the file")
			}
			clear(file[at : at+len(field)])
			copy(file[at:at+len(field)], labels)
			if err := os.WriteFile(path, file, 0o644); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{
				{"get", "--sum-by", "team"}, {"get", "--label", "team"}, {"get", "--label", "tema=x"}, {"get", "--label", "team=~(?s).*"},
				{"top", "--count", "1", "--sum-by", "team"}, {"get", "--sum-by", "team", "-o", "json"}, {"watch", "--history", "--count", "1", "-o", "json"},
				{"check"}, {"__complete", "--", "get", "--mirror", path, "--label", ""}, {"__complete", "--", "get", "--mirror", path, "--sum-by", ""},
			} {
				if args[0] != "__complete" {
					args = append(args, "--mirror", path)
				}
				code, out, talk := run(t, args...)
				if bad := shows(out + talk); len(bad) > 0 {
					t.Errorf("%q shows %q in %q, %q", args, bad, out, talk)
				}
				if len(args) > 4 && args[4] == "json" && args[0] == "get" {
					if what == "long" { // the field has no room for the value, so no counter has the key
						if code == 0 || out != "" || !strings.Contains(talk, "no counter has a label of this key") {
							t.Errorf("%q ends with %d, %q, %q; want that the key is unknown", args, code, out, talk)
						}
						continue
					}
					var j view.ReadingJSON
					if err := json.Unmarshal([]byte(out), &j); err != nil {
						t.Fatalf("%s: %v", out, err)
					}
					members, packets := 0, uint64(0)
					for _, s := range j.Sums {
						members += s.Counters
						packets += *s.Packets
					}
					if members != 2 || packets != 17 {
						t.Errorf("%d counters and %d packets in the sums: %s", members, packets, out)
					}
				}
			}
		})
	}
}
