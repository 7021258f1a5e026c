package flow

import (
	"fmt"
	"strings"
)

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
