package cli

import (
	"errors"
	"os"
	"testing"

	"github.com/flowtally/flowtally/dataplane/flow"
)

func TestParseMatchMarksMistakes(t *testing.T) {
	if _, err := parseMatch("tcp dport 443"); err != nil {
		t.Fatal(err)
	}
	_, err := parseMatch("ipv4 src 10.0.0.0/8 tcp dprt 443")
	if err == nil || !errors.Is(err, flow.ErrInvalid) {
		t.Fatalf("error %v, want flow.ErrInvalid", err)
	}
	want, rerr := os.ReadFile("testdata/match-mistake.txt")
	if rerr != nil {
		t.Fatal(rerr)
	}
	if got := err.Error() + "\n"; got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
