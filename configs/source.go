package configs

import (
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// source is the text of a file, with the offsets of its lines.
type source struct {
	text  string
	start []int // of each line, in bytes

	counted, length int // the line whose characters were counted last, and their number
}

func newSource(text string) *source {
	s := &source{text: text, start: []int{0}}
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\r':
			if i+1 < len(text) && text[i+1] == '\n' {
				i++
			}
			s.start = append(s.start, i+1)
		case '\n':
			s.start = append(s.start, i+1)
		}
	}
	return s
}

// line returns a line without its end, or "" if there is no such line.
func (s *source) line(n int) string {
	if n < 1 || n > len(s.start) {
		return ""
	}
	end := len(s.text)
	if n < len(s.start) {
		end = s.start[n]
	}
	return strings.TrimRight(s.text[s.start[n-1]:end], "\r\n")
}

// runes returns the number of characters of a line. It remembers the last line, because all mistakes may be on one long line.
func (s *source) runes(n int) int {
	if s.counted != n {
		s.counted, s.length = n, utf8.RuneCountInString(s.line(n))
	}
	return s.length
}

// offset returns the offset in bytes of a line and column.
func (s *source) offset(line, col int) int {
	if line < 1 || line > len(s.start) {
		return len(s.text)
	}
	at := s.start[line-1]
	for i := range s.line(line) {
		if col <= 1 {
			return at + i
		}
		col--
	}
	return at + len(s.line(line))
}

// place returns the line and column of an offset in bytes.
func (s *source) place(offset int) (line, col int) {
	offset = min(max(offset, 0), len(s.text))
	lo, hi := 0, len(s.start)-1
	for lo < hi { // find the last line that starts at or before offset
		mid := (lo + hi + 1) / 2
		if s.start[mid] <= offset {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo + 1, utf8.RuneCountInString(s.text[s.start[lo]:offset]) + 1
}

// find returns the place in the file of words[index] of a scalar. If index is len(words), it returns the place after the last
// word. YAML can fold and quote a scalar, so the offset in the value does not tell. ok is false if escapes hide a word.
func (s *source) find(n *yaml.Node, words []string, index int) (line, col int, ok bool) {
	at := s.offset(n.Line, n.Column)
	if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		at = s.offset(n.Line+1, 1)
	}
	for i, w := range words {
		found := strings.Index(s.text[at:], w)
		if found < 0 {
			return 0, 0, false
		}
		// Between words there can only be white space, and before the first a quote.
		if strings.Trim(s.text[at:at+found], " \t\r\n'\"") != "" {
			return 0, 0, false
		}
		at += found
		if i == index {
			line, col = s.place(at)
			return line, col, true
		}
		at += len(w)
	}
	line, col = s.place(at)
	return line, col, true
}
