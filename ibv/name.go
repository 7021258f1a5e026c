package ibv

import "fmt"

// name is the word for v, or the number of a value from a newer library.
func name[T ~uint8 | ~uint32](kind string, v T, words ...string) string {
	if uint64(v) < uint64(len(words)) {
		return words[v]
	}
	return fmt.Sprintf("%s %d", kind, uint32(v))
}
