//go:build linux

package vm

import "testing"

func TestRecordOfTheKernelLogIsParsed(t *testing.T) {
	for _, c := range []struct {
		record string
		want   Log
		fails  bool
	}{
		{"4,231,5140900,-;a warning\n SUBSYSTEM=net\n", Log{Level: 4, Text: "a warning"}, false},
		{"0,1,2,c;ends; with a semicolon\n", Log{Level: 0, Text: "ends; with a semicolon"}, false},
		{"12,1,2,-;a warning of a program\n", Log{Level: 12, Text: "a warning of a program"}, false},
		{"no record", Log{}, true},
	} {
		got, err := parseRecord(c.record)
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("%q: got %+v, %v; want %+v", c.record, got, err, c.want)
		}
	}
}
