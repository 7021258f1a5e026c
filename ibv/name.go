package ibv

import "fmt"

// name returns the word for v, or kind and number of a value that only a newer library has.
func name[T ~uint8 | ~uint32](kind string, v T, words ...string) string {
	if uint64(v) < uint64(len(words)) {
		return words[v]
	}
	return fmt.Sprintf("%s %d", kind, uint32(v))
}
