package flow

import (
	"encoding"
	"fmt"
	"strings"
)

var (
	directionWords = [...]string{Ingress: "ingress", Egress: "egress"}
	actionWords    = [...]string{Count: "count", Drop: "drop"}
)

var (
	_ encoding.TextMarshaler   = Match{}
	_ encoding.TextUnmarshaler = (*Match)(nil)
	_ encoding.TextMarshaler   = Direction(0)
	_ encoding.TextUnmarshaler = (*Direction)(nil)
	_ encoding.TextMarshaler   = Action(0)
	_ encoding.TextUnmarshaler = (*Action)(nil)
	_ encoding.TextMarshaler   = Fragment(0)
	_ encoding.TextUnmarshaler = (*Fragment)(nil)
)

// MarshalText returns the canonical text form. It fails if the match is invalid, because the text could not be parsed again.
func (m Match) MarshalText() ([]byte, error) {
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("writing match: %w", err)
	}
	return []byte(m.String()), nil
}

// UnmarshalText parses the text form like [ParseMatch]. On error the match does not change.
func (m *Match) UnmarshalText(text []byte) error {
	parsed, err := ParseMatch(string(text))
	if err != nil {
		return err
	}
	*m = parsed
	return nil
}

// MarshalText writes "ingress" or "egress".
func (d Direction) MarshalText() ([]byte, error) {
	return marshalWord("direction", d, directionWords[:])
}

// UnmarshalText reads "ingress" or "egress".
func (d *Direction) UnmarshalText(text []byte) error {
	return unmarshalWord("direction", d, text, directionWords[:])
}

// MarshalText writes "count" or "drop".
func (a Action) MarshalText() ([]byte, error) { return marshalWord("action", a, actionWords[:]) }

// UnmarshalText reads "count" or "drop".
func (a *Action) UnmarshalText(text []byte) error {
	return unmarshalWord("action", a, text, actionWords[:])
}

// MarshalText writes "any", "no", "yes", "first" or "later".
func (f Fragment) MarshalText() ([]byte, error) { return marshalWord("frag", f, fragmentWords[:]) }

// UnmarshalText reads "any", "no", "yes", "first" or "later".
func (f *Fragment) UnmarshalText(text []byte) error {
	return unmarshalWord("frag", f, text, fragmentWords[:])
}

func marshalWord[T ~uint8](field string, v T, words []string) ([]byte, error) {
	if int(v) >= len(words) {
		return nil, &FieldError{Field: field, Cause: fmt.Sprintf("value %d has no word", uint8(v)), Fix: "use " + oneOf(words)}
	}
	return []byte(words[v]), nil
}

func unmarshalWord[T ~uint8](field string, v *T, text []byte, words []string) error {
	for i, w := range words {
		if string(text) == w {
			*v = T(i)
			return nil
		}
	}
	fix := didYouMean(string(text), words)
	if fix == "" {
		fix = "write " + oneOf(words)
	}
	return &FieldError{Field: field, Cause: fmt.Sprintf("%q is not one of its words", clip(string(text))), Fix: fix}
}

// oneOf writes "a, b or c".
func oneOf(words []string) string {
	switch n := len(words); n {
	case 0:
		return ""
	case 1:
		return words[0]
	default:
		return strings.Join(words[:n-1], ", ") + " or " + words[n-1]
	}
}
