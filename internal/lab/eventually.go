package lab

import (
	"testing"
	"time"
)

// Eventually waits until ok returns true, and fails the test after a minute.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("%s did not come true", what)
}
