package configs

import "fmt"

// YAML values can be tiny, such as in "[,,,,", but each takes a few hundred bytes in the parsed tree. To keep a hostile file
// from exhausting memory, the number of values is limited: to one per bytesPerValue bytes, plus freeValues for small
// files, and to mostValues in total, whose tree takes some gigabytes. The limits apply to all files of a configuration
// together. Honest files have at least four bytes per value, and about ten values per flow.
const (
	freeValues    = 1 << 16
	bytesPerValue = 3
	mostValues    = 1 << 24
)

// allowance is how many more values the files of a configuration may have.
type allowance struct {
	free int // of freeValues
	left int // of mostValues
}

func newAllowance() *allowance { return &allowance{free: freeValues, left: mostValues} }

// values returns an upper limit for the number of values in a text. It counts punctuation, even in strings and comments. A
// colon counts for a key and its value.
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

// take deducts the values of a text. It returns an error if the parsed text could take too much memory.
func (a *allowance) take(text string) error {
	n, most := values(text), len(text)/bytesPerValue
	switch {
	case n > most+a.free:
		return fmt.Errorf("it has %d values in %d bytes, more than %d", n, len(text), most+a.free)
	case n > a.left:
		return fmt.Errorf("it has %d values, and the files of a configuration have %d at most", n+mostValues-a.left, mostValues)
	}
	a.free -= max(0, n-most)
	a.left -= n
	return nil
}
