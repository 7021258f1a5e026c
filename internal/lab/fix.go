package lab

import (
	"regexp"
	"strings"
	"testing"
)

// Step returns the step of a printed fix that pattern describes. In pattern, … stands for a value. words are pairs: a
// placeholder in the step, and its value in this test. The test then does what the step says. internal/rules finds the test
// of a fix by pattern.
func Step(t testing.TB, fix, pattern string, words ...string) string {
	t.Helper()
	text := strings.ReplaceAll(regexp.QuoteMeta(pattern), "…", `[^\s;,]+`)
	step := regexp.MustCompile(text).FindString(fix)
	if step == "" {
		t.Fatalf("the fix %q has no step %q", fix, pattern)
	}
	return strings.NewReplacer(words...).Replace(step)
}
