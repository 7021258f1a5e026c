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

// MarshalText writes the canonical text form. A match that does not validate
// is refused: its text would not read back.
func (m Match) MarshalText() ([]byte, error) {
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("writing match: %w", err)
	}
	return []byte(m.String()), nil
}

// UnmarshalText reads the text form, as ParseMatch does. On error the match is unchanged.
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

// didYouMean proposes the nearest of words, or nothing when none is near.
func didYouMean(word string, words []string) string {
	if near := Nearest(word, words); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return ""
}

// Nearest returns the one of words that was most likely meant by word: it differs in at most a
// third of its letters, or only in case, or word is its beginning. Empty if no word is near, or if the
// nearest is the opposite.
func Nearest(word string, words []string) string {
	if len(word) == 0 || len(word) > 64 || word[0] == '!' {
		return ""
	}
	lower := strings.ToLower(word)
	best, bestAt := "", 1<<30
	for _, w := range words {
		if negates(w, lower) || negates(lower, w) {
			continue
		}
		d := distance(lower, strings.ToLower(w))
		if len(lower) >= 3 && strings.HasPrefix(w, lower) {
			d = min(d, 1)
		}
		if d <= max(1, (len(w)+1)/3) && d < len(w) && d < bestAt {
			best, bestAt = w, d
		}
	}
	return best
}

// negates reports whether a word is the opposite of another one, however near: untagged of tagged.
func negates(word, other string) bool {
	for _, prefix := range []string{"un", "in", "not", "non", "no", "not-", "non-", "no-"} {
		if word == prefix+other {
			return true
		}
	}
	return false
}

// distance is Levenshtein's, with a swap of neighbours counted once.
func distance(a, b string) int {
	prev2, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}
