package lab

import (
	"regexp"
	"strings"
	"testing"
)

// Step returns the step of a fix, as it is printed, that pattern describes: in pattern … is a value. words are pairs, of a
// placeholder in the step and of its value for this test. The test does then what the step says. By pattern the list of
// fixes in internal/rules finds the test.
func Step(t testing.TB, fix, pattern string, words ...string) string {
	t.Helper()
	text := strings.ReplaceAll(regexp.QuoteMeta(pattern), "…", `[^\s;,]+`)
	step := regexp.MustCompile(text).FindString(fix)
	if step == "" {
		t.Fatalf("the fix %q has no step %q", fix, pattern)
	}
	return strings.NewReplacer(words...).Replace(step)
}
