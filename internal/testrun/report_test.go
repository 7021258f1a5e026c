package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSummaryNamesEachFailureAndSkip(t *testing.T) {
	var shown strings.Builder
	r := newReport(&shown)
	err := r.read(strings.NewReader(`{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestGood"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"    a_test.go:1: a log\n"}
{"Action":"pass","Package":"p","Test":"TestGood"}
{"Action":"output","Package":"p","Test":"TestSkip/one","Output":"    a_test.go:9: needs root: the effective user is not root\n"}
{"Action":"output","Package":"p","Test":"TestSkip/one","Output":"    --- SKIP: TestSkip/one (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestSkip/one"}
{"Action":"output","Package":"p","Test":"TestSkip/two","Output":"    b_test.go:8: needs root: the effective user is not root\n"}
{"Action":"skip","Package":"p","Test":"TestSkip/two"}
{"Action":"skip","Package":"p","Test":"TestMute"}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"pass","Package":"p"}
{"Action":"output","Package":"q","Test":"TestBad","Output":"=== RUN   TestBad\n"}
{"Action":"output","Package":"q","Test":"TestBad","Output":"    b_test.go:3: 1, want 2\n"}
{"Action":"fail","Package":"q","Test":"TestBad"}
{"Action":"output","Package":"q","Test":"TestHangs","Output":"panic: test timed out\n"}
{"Action":"output","Package":"q","Output":"FAIL\tq\t9s\n"}
{"Action":"fail","Package":"q"}
{"ImportPath":"b","Action":"build-output","Output":"b.go:1: syntax error\n"}
{"Action":"output","Package":"b","Output":"FAIL\tb [build failed]\n"}
{"Action":"fail","Package":"b"}
not an event
`))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(`ok  	p	0.1s
    b_test.go:3: 1, want 2
panic: test timed out
FAIL	q	9s
b.go:1: syntax error
FAIL	b [build failed]
not an event
`, shown.String()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(`
lane: FAILED: 1 passed, 3 failed, 3 skipped in 2m3s
  failed: q TestBad
  failed: q TestHangs
  failed: b
  skipped: needs root: the effective user is not root (2 tests, such as TestSkip/one)
  skipped: no reason given (TestMute)
`, r.summary("lane", 123*time.Second+time.Millisecond, false)); d != "" {
		t.Error(d)
	}
}
