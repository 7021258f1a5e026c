package cli

import (
	"testing"
	"time"
)

func TestHuman(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{humanBytes(0), "0 B"},
		{humanBytes(1023), "1023 B"},
		{humanBytes(1024), "1.0 KiB"},
		{humanBytes(8 << 20), "8.0 MiB"},
		{humanBytes(1<<64 - 1), "16.0 EiB"},
		{humanCount(0), "0"},
		{humanCount(999), "999"},
		{humanCount(1000), "1,000"},
		{humanCount(1<<64 - 1), "18,446,744,073,709,551,615"},
		{humanRate(0), "0"},
		{humanRate(999.4), "999"},
		{humanRate(1000), "1.00k"},
		{humanRate(999996), "1.00M"},
		{humanRate(1.5e9), "1.50G"},
		{humanAge(-time.Second), "0"},
		{humanAge(999), "999ns"},
		{humanAge(2 * time.Microsecond), "2µs"},
		{humanAge(15 * time.Millisecond), "15ms"},
		{humanAge(1500 * time.Millisecond), "1.5s"},
		{humanAge(12 * time.Second), "12s"},
		{humanAge(61 * time.Minute), "1h01m"},
		{humanAge(72 * time.Hour), "3d"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}

func TestTable(t *testing.T) {
	tab := table{heading: []string{"NAME", ">COUNT", "NOTE"}}
	tab.add("a", "1", "")
	tab.add("größer", "1,000", "x")
	tab.note("  try: something that is longer than the columns")
	tab.add("b", "-", "y")
	want := `NAME    COUNT  NOTE
a           1
größer  1,000  x
  try: something that is longer than the columns
b           -  y
`
	if got := tab.render(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
