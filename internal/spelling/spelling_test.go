package spelling_test

import (
	"testing"

	"github.com/flowtally/flowtally/internal/spelling"
)

func TestNearestCorrectsTyposAndAbbreviations(t *testing.T) {
	for _, c := range []struct{ word, want string }{
		{"interfacs", "interfaces"},
		{"itnerfaces", "interfaces"}, // two letters swapped
		{"INTERFACES", "interfaces"},
		{"inter", "interfaces"},
		{"mirror", "mirror"},
		{"in", ""}, // too short to abbreviate
		{"", ""},
		{"nothing like it", ""},
	} {
		if near := spelling.Nearest(c.word, []string{"interfaces", "mirror", "poll"}); near != c.want {
			t.Errorf("the word nearest to %q is %q, want %q", c.word, near, c.want)
		}
	}
}

func TestNearestNeverProposesTheOpposite(t *testing.T) {
	for _, c := range []struct{ word, opposite string }{
		{"!tcp", "tcp"},
		{"tagged", "untagged"},
		{"complete", "incomplete"},
		{"non-strict", "strict"},
	} {
		if near := spelling.Nearest(c.word, []string{c.opposite}); near != "" {
			t.Errorf("%q is proposed for %q", near, c.word)
		}
	}
}
