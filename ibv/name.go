package ibv

import "fmt"

// name returns the word for v. A newer library may have values without a word here: then it returns kind
// and number.
func name[T ~uint8 | ~uint32](kind string, v T, words ...string) string {
	if uint64(v) < uint64(len(words)) {
		return words[v]
	}
	return fmt.Sprintf("%s %d", kind, uint32(v))
}
