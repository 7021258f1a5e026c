package format

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Other programs choose the strings in a mirror, of a plugin and of the kernel, and they may be hostile. A terminal obeys
// control characters in a string (ESC, OSC, C1), and characters of bidirectional writing make it reorder the text around
// them. Every string from outside must pass one of the functions below before it is printed.

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// Printable returns s, or s as a quoted Go string if it contains unprintable characters or invalid UTF-8.
func Printable(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, unprintable) {
		return s
	}
	return strconv.Quote(s)
}

// PrintableLines is Printable for text of several lines. It keeps line breaks and tabs, and escapes other unprintable
// characters one by one.
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

// printableJSON escapes the unprintable characters in a line of JSON. They can only be inside strings, so the line still
// decodes to the same value.
func printableJSON(line []byte) []byte {
	text := strings.TrimSuffix(string(line), "\n")
	if !strings.ContainsFunc(text, unprintable) {
		return line
	}
	var b strings.Builder
	for _, r := range text { // the encoder has replaced invalid UTF-8
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
