package configs

import "fmt"

// The tree of a file takes a few hundred bytes for each value, and a value may be one byte. So a file has a number of
// values in proportion to its length. Ours have one in four bytes at most. All files of a configuration share the values
// that are free.
const (
	freeValues    = 1 << 16
	bytesPerValue = 3 // beyond
)

// values returns how many values a text has at most, by the signs that stand between them. Signs within texts and
// comments count too; a sign that ends a key stands for the key and its value.
func values(text string) (n int) {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case ',', '[':
			n += 2
		case '{':
			n += 3
		case ':', '?':
			if gap(text, i+1) {
				n += 2
			}
		case '-':
			if gap(text, i+1) {
				n++
			}
		}
	}
	return n
}

func gap(text string, at int) bool {
	return at >= len(text) || text[at] == ' ' || text[at] == '\t' || text[at] == '\n' || text[at] == '\r'
}

// dense refuses a text whose tree would take memory out of proportion. It returns how many values are left free.
func dense(text string, free int) (left int, err error) {
	n, most := values(text), len(text)/bytesPerValue
	if n > most+free {
		return free, fmt.Errorf("it has %d values in %d bytes, more than %d", n, len(text), most+free)
	}
	return free - max(0, n-most), nil
}
