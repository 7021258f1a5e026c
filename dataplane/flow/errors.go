package flow

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ErrInvalid means that a flow breaks a rule. Every error of this package wraps it.
var ErrInvalid = errors.New("invalid flow")

// FieldError is one mistake in a flow or a match.
type FieldError struct {
	Flow  string // name of the flow; empty if only a Match was checked
	Field string // "ipv4.src", "vxlan.inner.tcp.dport", "vlan[1].id", "name"; empty for the whole match
	Cause string
	Fix   string // the next step; may be empty
}

func (e *FieldError) Error() string {
	var b strings.Builder
	if e.Flow != "" {
		fmt.Fprintf(&b, "flow %q: ", e.Flow)
	}
	if e.Field != "" {
		b.WriteString(e.Field + ": ")
	}
	b.WriteString(e.Cause)
	if e.Fix != "" {
		b.WriteString("; " + e.Fix)
	}
	return b.String()
}

// Is makes errors.Is(err, ErrInvalid) true.
func (e *FieldError) Is(target error) bool { return target == ErrInvalid }

// ParseError is one mistake in the text of a match.
type ParseError struct {
	Word       string // the wrong word; empty if the text ends too early
	Offset     int    // of Word in bytes, or the length of the text
	Index      int    // of Word among the words, or their number
	Message    string // what is wrong, and what the parser expected
	Suggestion string // "did you mean …"; may be empty
}

func (e *ParseError) Error() string {
	s := fmt.Sprintf("at byte %d", e.Offset)
	if e.Word != "" {
		s = quoted(e.Word) + " " + s
	}
	s += ": " + e.Message
	if e.Suggestion != "" {
		s += "; " + e.Suggestion
	}
	return s
}

// Is makes errors.Is(err, ErrInvalid) true.
func (e *ParseError) Is(target error) bool { return target == ErrInvalid }

// ParseErrors has every mistake in the text of a match, in the order of the text. It is the type of all errors of
// [ParseMatch] and [ParseWords].
type ParseErrors []*ParseError

func (e ParseErrors) Error() string {
	lines := make([]string, len(e))
	for i, p := range e {
		lines[i] = p.Error()
	}
	return "match: " + strings.Join(lines, "\nmatch: ")
}

// Unwrap lets errors.Is and errors.As see each mistake.
func (e ParseErrors) Unwrap() []error {
	errs := make([]error, len(e))
	for i, p := range e {
		errs[i] = p
	}
	return errs
}

// clip shortens a long word for an error, at a character boundary.
func clip(s string) string {
	most := 60
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "…"
}

func quoted(word string) string { return strconv.Quote(clip(word)) }
