package format

import (
	"testing"
	"time"
)

func TestNumbersAndTimesAreReadable(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{Bytes(0), "0 B"},
		{Bytes(1023), "1023 B"},
		{Bytes(1024), "1.0 KiB"},
		{Bytes(8 << 20), "8.0 MiB"},
		{Bytes(1<<64 - 1), "16.0 EiB"},
		{Count(0), "0"},
		{Count(999), "999"},
		{Count(1000), "1,000"},
		{Count(1<<64 - 1), "18,446,744,073,709,551,615"},
		{Rate(0), "0"},
		{Rate(999.4), "999"},
		{Rate(1000), "1.00k"},
		{Rate(999996), "1.00M"},
		{Rate(1.5e9), "1.50G"},
		{Progress(-1, 0), "0 B"},
		{Progress(2048, 0), "2.0 KiB"},
		{Progress(0, 10), "[..............................]   0%"},
		{Progress(5, 10), "[###############...............]  50%"},
		{Progress(99, 10), "[##############################] 100%"},
		{Age(-time.Second), "0"},
		{Age(999), "999ns"},
		{Age(2 * time.Microsecond), "2µs"},
		{Age(15 * time.Millisecond), "15ms"},
		{Age(1500 * time.Millisecond), "1.5s"},
		{Age(12 * time.Second), "12s"},
		{Age(61 * time.Minute), "1h01m"},
		{Age(72 * time.Hour), "3d"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}

func TestTableAlignsColumnsAroundNotes(t *testing.T) {
	tab := Table{Heading: []string{"NAME", ">COUNT", "NOTE"}}
	tab.Add("a", "1", "")
	tab.Add("größer", "1,000", "x")
	tab.Note("  try: something that is longer than the columns")
	tab.Add("b", "-", "y")
	want := `NAME    COUNT  NOTE
a           1
größer  1,000  x
  try: something that is longer than the columns
b           -  y
`
	if got := tab.Render(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
