package configs

import (
	"strings"
	"testing"
)

// The fields that tell our files from others are those that the decoder reads.
func TestOursKnowsEveryField(t *testing.T) {
	for _, c := range []struct {
		name, text string
		parse      func(text string) error
		fields     []string
	}{
		{"a configuration", "backend: sim\nzzzz: 1\n", func(s string) error { _, err := Parse("f", []byte(s)); return err }, mainFields},
		{"a flow", "- {name: a, zzzz: 1}\n", func(s string) error { _, err := ParseFlows("f", []byte(s)); return err }, flowFields},
	} {
		if err := c.parse(c.text); err == nil || !strings.Contains(err.Error(), "its fields are "+strings.Join(c.fields, ", ")+"\n") && !strings.HasSuffix(err.Error(), "its fields are "+strings.Join(c.fields, ", ")) {
			t.Errorf("%s: %v, want the fields %v", c.name, err, c.fields)
		}
	}
	for text, want := range map[string]bool{
		"flows: [\n": true, "  \"flows\": [\n": true, "{flows: [\n": true, "flosw: [\n": true, "x: 1\nflows: [\n": true,
		"": false, "users: [\n": false, "root:x:0\n": false, "secret\n": false,
	} {
		if got := ours(text, fragmentFields); got != want {
			t.Errorf("ours(%q) = %v", text, got)
		}
	}
}
