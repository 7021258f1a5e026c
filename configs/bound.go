package configs

import "fmt"

// The tree of a file takes a few hundred bytes for each value, and a value may be one byte. So a file has a number of
// values in proportion to its length. Ours have one in four bytes at most. All files of a configuration share the values
// that are free, and the most that there may be: a tree of that many takes some gigabytes. A flow has ten or so.
const (
	freeValues    = 1 << 16
	bytesPerValue = 3 // beyond
	mostValues    = 1 << 24
)

// allowance is the values that the files of a configuration may still have.
type allowance struct {
	free int // beyond the proportion of a file's length
	left int // of all
}

func newAllowance() *allowance { return &allowance{free: freeValues, left: mostValues} }

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

// take refuses a text whose tree would take too much memory.
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
