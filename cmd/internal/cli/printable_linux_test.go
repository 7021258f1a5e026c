package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/flowtally/flowtally/cmd/internal/view"
)

// hostile has strings that a terminal obeys or shows at another place. A mirror can have each of them as a name.
var hostile = map[string]string{
	"CSI":        "\x1b[2J\x1b[31mweb",
	"OSC":        "\x1b]0;owned\aweb",
	"C1":         "\u009b2Jweb\u009d0;x\u009c",
	"raw C1":     "\x9b2Jweb",
	"DEL":        "web\x7f\x7f\x7f",
	"lines":      "web\nrest  flow  1,000,000",
	"return":     "web\rrest",
	"bidi":       "\u202ebew\u202c\u2066x\u2069\u200f",
	"invisible":  "w\u200be\ufeffb\u00adx",
	"separators": "web\u2028rest\u2029",
	"tag":        "web\U000e0041",
}

// shows returns the characters that no output of a command may hold.
func shows(text string) []rune {
	if !utf8.ValidString(text) { // a terminal that takes bytes for C1 obeys them
		return []rune{utf8.RuneError}
	}
	var bad []rune
	for _, r := range text {
		if r != '\n' && !unicode.IsPrint(r) {
			bad = append(bad, r)
		}
	}
	return bad
}

// A hostile writer chooses the strings in a mirror. No output may have a control character, nor more lines than there
// are counters.
func TestHostileNamesPrintNoControlCharacter(t *testing.T) {
	const name, source = "placeholder-of-a-name-that-is-long-enough", "placeholder-of-a-source-that-is-long-enough"
	for what, text := range hostile {
		t.Run(what, func(t *testing.T) {
			path, w := webMirror(t)
			if err := w.add([]string{name, "flow", "7", "8", source, "l2"}); err != nil {
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
			for _, placeholder := range []string{name, source} {
				file = bytes.Replace(file, []byte(placeholder), []byte(text+strings.Repeat("\x00", len(placeholder)-len(text))), 1)
			}
			if err := os.WriteFile(path, file, 0o644); err != nil {
				t.Fatal(err)
			}
			lines := 0
			for _, args := range [][]string{
				{"get"}, {"top", "--count", "1"}, {"get", "-o", "json"}, {"get", "absent"}, {"watch", "--history", "--count", "1"},
				{"watch", "--history", "--count", "1", "-o", "json"}, {"check"}, {"wait", "--at-least", "9", "--timeout", "10ms", text},
				{"__complete", "--", "get", "--mirror", path, ""},
			} {
				if args[0] != "__complete" {
					args = append(args, "--mirror", path)
				}
				_, out, talk := run(t, args...)
				if bad := shows(out + talk); len(bad) > 0 {
					t.Errorf("%s shows %q in %q, %q", args[0], bad, out, talk)
				}
				switch args[0] {
				case "get", "top":
					if lines += strings.Count(out, "\n"); out != "" && !strings.Contains(out, "web") {
						t.Errorf("%s says %q", args[0], out)
					}
				}
				if len(args) > 2 && args[2] == "json" && text != hostile["raw C1"] {
					var j view.ReadingJSON
					if err := json.Unmarshal([]byte(out), &j); err != nil || j.Counters[0].Name != text && j.Counters[1].Name != text {
						t.Errorf("JSON says %s, %v, want %q among the names", out, err, text)
					}
				}
			}
			if lines != 3+4+1 { // a heading and two counters; a title more; JSON
				t.Errorf("get, top and get -o json print %d lines", lines)
			}
		})
	}
}
