package format

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Other programs choose the strings of a mirror, of a plugin and of the kernel. A terminal obeys control
// characters in such a string (ESC, OSC, C1), and a character of bidirectional writing makes it reorder the
// text around that character. The functions below replace these characters before a string is printed.

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// Printable returns s, or s quoted as in Go if it holds an unprintable character or invalid UTF-8.
func Printable(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, unprintable) {
		return s
	}
	return strconv.Quote(s)
}

// PrintableLines is Printable for text of several lines. It replaces only the unprintable characters, and
// keeps line breaks and tabs.
func PrintableLines(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 || r != '\n' && r != '\t' && unprintable(r) {
			quoted := strconv.Quote(s[:n])
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// printableJSON escapes the unprintable characters of JSON on one line. The encoded value stays the same.
func printableJSON(line []byte) []byte {
	text := strings.TrimSuffix(string(line), "\n")
	if !strings.ContainsFunc(text, unprintable) {
		return line
	}
	var b strings.Builder
	for _, r := range text { // valid UTF-8: the encoder sees to it
		switch hi, lo := utf16.EncodeRune(r); {
		case !unprintable(r):
			b.WriteRune(r)
		case hi != unicode.ReplacementChar:
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return append([]byte(b.String()), '\n')
}
