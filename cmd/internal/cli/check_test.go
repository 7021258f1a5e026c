package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each of 2,000 flows has a warning, and so has a missing interface. check prints the first ones of each kind and the
// number of the others. Its JSON has all.
func TestWarningsOfManyFlowsFitAScreen(t *testing.T) {
	const flows = 2000
	var b strings.Builder
	b.WriteString("interfaces: [absent0]\nflows:\n- {name: all, match: any}\n")
	for i := range flows {
		fmt.Fprintf(&b, "- {name: f%d, match: udp dport %d}\n", i, i+1)
	}
	path := filepath.Join(t.TempDir(), "many.yaml")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, talk bytes.Buffer
	if code := Main(t.Context(), strings.NewReader(""), &out, &talk, []string{"check", "--config", path}); code != exitOK {
		t.Fatalf("code %d: %s", code, talk.String())
	}
	text := talk.String()
	if n := strings.Count(text, "\n"); n > 2*mostWarnings+10 {
		t.Errorf("%d lines of warnings", n)
	}
	for _, want := range []string{fmt.Sprintf("flowtally: %s more warnings of this kind: -o json shows all", "1,980"), "interface absent0: it is not on this host"} {
		if !strings.Contains(text, want) {
			t.Errorf("the warnings lack %q", want)
		}
	}

	out.Reset()
	if code := Main(t.Context(), strings.NewReader(""), &out, &talk, []string{"check", "--config", path, "-o", "json"}); code != exitOK {
		t.Fatalf("code %d", code)
	}
	var got checkedConfigJSON
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || len(got.Warnings) != flows+1 {
		t.Errorf("%d warnings in JSON, %v", len(got.Warnings), err)
	}
}
