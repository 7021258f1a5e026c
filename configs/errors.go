package configs

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/flowtally/flowtally/dataplane"
)

// Error has the mistakes of a configuration, in the order of its files and lines. It satisfies
// errors.Is(err, dataplane.ErrInvalid).
type Error struct {
	File     string
	Problems []Problem // at most 1000
	More     int       // number of further mistakes; counting stops at 32,768
}

// Problem is one mistake in a configuration, with its place and the line it is on.
type Problem struct {
	File       string
	Line, Col  int // in characters, from 1; both are 0 if the mistake has no place
	Width      int // of the wrong text in characters, at least 1
	Msg        string
	Suggestion string // the next step; may be empty
	Source     string // the line; empty if the file is no configuration and might be secret
}

// mostShown limits the output of Error.Error.
const mostShown = 50

func (e *Error) Error() string {
	var b strings.Builder
	mistakes := "1 mistake"
	if n := len(e.Problems) + e.More; n != 1 {
		mistakes = fmt.Sprintf("%d mistakes", n)
		if n > mostCounted {
			mistakes = fmt.Sprintf("more than %d mistakes", mostCounted)
		}
	}
	fmt.Fprintf(&b, "configuration %s: %s", e.File, mistakes)
	for i, p := range e.Problems {
		if i == mostShown {
			fmt.Fprintf(&b, "\n… and %d more", len(e.Problems)+e.More-mostShown)
			break
		}
		b.WriteString("\n" + p.String())
	}
	return b.String()
}

// Is makes errors.Is(err, dataplane.ErrInvalid) true.
func (e *Error) Is(target error) bool { return target == dataplane.ErrInvalid }

// String formats the mistake like a compiler: place and message, the line with a marker below, and the next step.
func (p Problem) String() string {
	var b strings.Builder
	if p.Line == 0 {
		fmt.Fprintf(&b, "%s: %s", p.File, p.Msg)
	} else {
		fmt.Fprintf(&b, "%s:%d:%d: %s", p.File, p.Line, p.Col, p.Msg)
	}
	if p.Line != 0 && p.Source != "" {
		source, col := window(p.Source, p.Col)
		fmt.Fprintf(&b, "\n%5d | %s\n      | %s%s", p.Line, printable(source), indent(source, col), strings.Repeat("^", max(1, min(p.Width, mostSource))))
	}
	if p.Suggestion != "" {
		fmt.Fprintf(&b, "\n      = %s", p.Suggestion)
	}
	return b.String()
}

// mostSource limits the length of a quoted line.
const mostSource = 160

// window cuts a long line to the part around a column. It does not copy, because the line may be as long as the file.
func window(source string, col int) (string, int) {
	if len(source) <= mostSource {
		return source, col
	}
	at := advance(source, 0, col-1)
	start := retreat(source, at, mostSource/2)
	end := advance(source, start, mostSource)
	start = retreat(source, end, mostSource) // show more before the column if the line ends soon after
	return source[start:end], 1 + utf8.RuneCountInString(source[start:min(at, end)])
}

// advance returns the offset n characters after the offset at.
func advance(s string, at, n int) int {
	for ; n > 0 && at < len(s); n-- {
		_, size := utf8.DecodeRuneInString(s[at:])
		at += size
	}
	return at
}

// retreat returns the offset n characters before the offset at.
func retreat(s string, at, n int) int {
	for ; n > 0 && at > 0; n-- {
		_, size := utf8.DecodeLastRuneInString(s[:at])
		at -= size
	}
	return at
}

// printable replaces control characters, so that a file cannot send escape sequences to the terminal.
func printable(source string) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && (r < ' ' || r >= 0x7f && r < 0xa0 || r == utf8.RuneError) {
			return '?'
		}
		return r
	}, source)
}

// indent returns white space as wide as the line before the column.
func indent(source string, col int) string {
	var b strings.Builder
	n := 1
	for _, r := range source {
		if n == col {
			return b.String()
		}
		n++
		if r == '\t' {
			b.WriteRune(r)
		} else {
			b.WriteByte(' ')
		}
	}
	return b.String() + strings.Repeat(" ", max(0, min(col-n, mostSource)))
}
