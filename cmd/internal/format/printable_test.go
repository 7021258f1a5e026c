package format

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Printable strings stay as they are. Escaped JSON decodes to the same value.
func TestPrintableEscapesControlCharactersAlone(t *testing.T) {
	for _, s := range []string{"", "web", "é 計 ✓ … “x”", `a\b"c`} {
		if Printable(s) != s || PrintableLines(s+"\n\t"+s) != s+"\n\t"+s {
			t.Errorf("%q is %q, lines %q", s, Printable(s), PrintableLines(s))
		}
	}
	if got := PrintableLines("a \"b\" \x1b[0m\r\n\xff"); got != `a "b" \x1b[0m\r`+"\n"+`\xff` {
		t.Errorf("%q", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		s := strings.ToValidUTF8(rapid.String().Draw(t, "s")+rapid.SampledFrom([]string{"", "\u202e", "\U000e0041", "\x7f"}).Draw(t, "more"), "?")
		var out bytes.Buffer
		if err := JSON(&out, s); err != nil {
			t.Fatal(err)
		}
		var back string
		if err := json.Unmarshal(out.Bytes(), &back); err != nil || back != s {
			t.Fatalf("%q came back as %q, %v", s, back, err)
		}
		if strings.ContainsFunc(strings.TrimSuffix(out.String(), "\n"), unprintable) || strings.ContainsFunc(Printable(s), unprintable) {
			t.Fatalf("%q is printed as %q and %q", s, out.String(), Printable(s))
		}
	})
}
