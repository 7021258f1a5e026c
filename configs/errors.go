package configs

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/flowtally/flowtally/dataplane"
)

// Error is every mistake in one file, in the order of its lines. It satisfies
// errors.Is(err, dataplane.ErrInvalid).
type Error struct {
	File     string
	Problems []Problem
	More     int // mistakes beyond the first 1000, which Problems holds; not counted beyond 32,768 in all
}

// Problem is one mistake.
type Problem struct {
	File       string
	Line, Col  int    // from 1; columns are characters. 0 when the mistake has no place
	Width      int    // characters that are marked, at least 1
	Msg        string // the mistake
	Suggestion string // the next step; may be empty
	Source     string // the line, without its end; empty where the file is not one of ours
}

// mostShown bounds the output of Error; Problems holds every mistake.
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

// String writes the mistake as compilers do: place and text, the source line
// with the place marked, the next step.
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

// mostSource bounds a source line that is shown.
const mostSource = 160

// window cuts a long line around a column. It copies nothing: the line may be as long as the file.
func window(source string, col int) (string, int) {
	if len(source) <= mostSource {
		return source, col
	}
	at := advance(source, 0, col-1)
	start := retreat(source, at, mostSource/2)
	end := advance(source, start, mostSource)
	start = retreat(source, end, mostSource) // the end of the line may be near
	return source[start:end], 1 + utf8.RuneCountInString(source[start:min(at, end)])
}

// advance returns the byte that is n characters behind the byte at.
func advance(s string, at, n int) int {
	for ; n > 0 && at < len(s); n-- {
		_, size := utf8.DecodeRuneInString(s[at:])
		at += size
	}
	return at
}

// retreat returns the byte that is n characters ahead of the byte at.
func retreat(s string, at, n int) int {
	for ; n > 0 && at > 0; n-- {
		_, size := utf8.DecodeLastRuneInString(s[:at])
		at -= size
	}
	return at
}

// printable replaces characters of a file that a terminal would obey.
func printable(source string) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && (r < ' ' || r >= 0x7f && r < 0xa0 || r == utf8.RuneError) {
			return '?'
		}
		return r
	}, source)
}

// indent returns white space as wide as the line up to the column.
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
