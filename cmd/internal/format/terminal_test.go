package format

import "testing"

func TestDrawOverCutsLinesAndClearsTheRest(t *testing.T) {
	got := DrawOver("abcdef\nxy\n", 4)
	want := "\x1b[Habc…\x1b[K\r\nxy\x1b[K\r\n\x1b[J"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
