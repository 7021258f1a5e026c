package shm

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// putString writes s into a field, padded with NUL.
func putString(field []byte, s string) {
	clear(field[copy(field, s):])
}

// TextSum returns what an entry appends to a text that it had to cut: a checksum, to tell long texts with one beginning apart.
func TextSum(s string) string {
	return fmt.Sprintf(" #%.8x", sha256.Sum256([]byte(s))) // 8 bytes of it
}

// putCut is putString for a text of any length. It cuts a text that is too long at the start of a rune, and appends what endOf
// returns for the whole text. It also replaces NULs and invalid UTF-8. putCut reports whether it cut.
func putCut(field []byte, s string, endOf func(string) string) (cut bool) {
	whole := s
	if strings.IndexByte(s, 0) >= 0 || !utf8.ValidString(s) {
		s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", " "), "�")
	}
	if len(s) < len(field) {
		putString(field, s)
		return false
	}

	end := endOf(whole)
	n := len(field) - 1 - len(end)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	putString(field, s[:n]+end)
	return true
}

// getString reads a field up to its NUL. A hostile file may lack the NUL; the string then is the whole field.
func getString(field []byte) string { return string(upToNUL(field)) }

func upToNUL(field []byte) []byte {
	before, _, _ := bytes.Cut(field, []byte{0})
	return before
}

// fits returns an error for a string that does not fit a field, or could mislead a terminal.
func fits(what, s string, field int, empty bool) error {
	switch {
	case s == "" && !empty:
		return fmt.Errorf("%s is empty: %w", what, ErrInvalid)
	case len(s) >= field:
		return fmt.Errorf("%s %q is longer than %d bytes: %w", what, s, field-1, ErrInvalid)
	case !utf8.ValidString(s):
		return fmt.Errorf("%s %q is not UTF-8: %w", what, s, ErrInvalid)
	case strings.ContainsFunc(s, unprintable):
		return fmt.Errorf("%s %q holds a character that is not printable: %w", what, s, ErrInvalid)
	}
	return nil
}

// unprintable reports whether a terminal would obey the character (controls, including C1) or show the text around it
// differently (writing direction, invisible characters, spaces other than U+0020).
func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// encodeLabels writes the labels as key=value, sorted by key, each with a NUL at its end.
func encodeLabels(labels map[string]string) (out [labelsSize]byte, err error) {
	var few [8]string // so that sorting up to eight keys allocates nothing
	keys := slices.AppendSeq(few[:0], maps.Keys(labels))
	slices.Sort(keys)

	at := 0
	for _, k := range keys {
		v := labels[k]
		if !validLabel(k, v) {
			return out, fmt.Errorf("label %q: keys are not empty, are printable and hold no '=', values no NUL: %w", k+"="+v, ErrInvalid)
		}
		if at+len(k)+1+len(v)+2 > labelsSize {
			return out, fmt.Errorf("labels take more than %d bytes: %w", labelsSize-1, ErrInvalid)
		}
		at += copy(out[at:], k)
		at += copy(out[at:], "=")
		at += copy(out[at:], v) + 1
	}
	return out, nil
}

func validLabel(key, value string) bool {
	switch {
	case key == "" || !utf8.ValidString(key):
		return false
	case strings.ContainsRune(key, '=') || strings.ContainsFunc(key, unprintable):
		return false
	}
	return utf8.ValidString(value) && strings.IndexByte(value, 0) < 0
}

// decodeLabels reads the labels of a field. It skips whatever is not key=value.
func decodeLabels(field []byte) map[string]string {
	var labels map[string]string
	for len(field) > 0 && field[0] != 0 {
		s := getString(field)
		if k, v, ok := strings.Cut(s, "="); ok && k != "" {
			if labels == nil {
				labels = make(map[string]string)
			}
			labels[k] = v
		}
		field = field[min(len(s)+1, len(field)):]
	}
	return labels
}
