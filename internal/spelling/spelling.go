// Package spelling guesses the word that a misspelled one stands for.
package spelling

import "strings"

// maxWord bounds the length of a word to correct, because distance takes time and memory in proportion to it.
const maxWord = 64

// Nearest returns the known word closest to a misspelled one, for a "did you mean" hint, or "" if none is close. A
// known word is close if at most a third of its letters differ, or if the misspelled word abbreviates it. Case does
// not count.
//
// An opposite is never close: a user who wrote "tagged" does not want "untagged".
func Nearest(word string, words []string) string {
	if len(word) == 0 || len(word) > maxWord || word[0] == '!' {
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

// negates reports whether word is other with a negating prefix, as in untagged and tagged.
func negates(word, other string) bool {
	for _, prefix := range []string{"un", "in", "not", "non", "no", "not-", "non-", "no-"} {
		if word == prefix+other {
			return true
		}
	}
	return false
}

// distance returns the edit distance of two words: the fewest letters to insert, delete, replace, or swap with the
// next one, that turn a into b.
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
