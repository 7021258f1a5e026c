package flow

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ErrInvalid is satisfied by every error of this package.
var ErrInvalid = errors.New("invalid flow")

// FieldError is one broken rule of a flow or a match.
type FieldError struct {
	Flow  string // the flow's name; empty when a Match was checked on its own
	Field string // "ipv4.src", "vxlan.inner.tcp.dport", "vlan[1].id", "name"; empty for the whole match
	Cause string // the reason
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
	Offset     int    // of Word in the text, in bytes; the text's length when it ends too early
	Index      int    // of Word among the words; their number when the text ends too early
	Word       string // the offending word; empty when the text ends too early
	Message    string // the error, and the expected words
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

// ParseErrors is every mistake in the text of a match, in the order of the
// text. ParseMatch and ParseWords return nothing else.
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

// clip keeps an error readable when a word is not. It cuts no character in two.
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
