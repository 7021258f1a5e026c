package cli

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Strings of a mirror, of a plugin and of the kernel are others' to choose. A terminal obeys the
// control characters among them (ESC, OSC, C1), and shows what stands around a character of bidirectional
// writing in another order: nothing of this is printed as it is.

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// printable returns s, quoted as in Go where it holds what is not printable.
func printable(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, unprintable) {
		return s
	}
	return strconv.Quote(s)
}

// printableLines is printable for text of several lines, in which nothing but what is not printable
// is replaced.
func printableLines(s string) string {
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

// printableJSON escapes what is not printable in JSON on one line, whose meaning stays.
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
