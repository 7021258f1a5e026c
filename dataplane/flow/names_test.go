package flow

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// A range such as "a-b" must not be the name of another port, and a name must not be a number.
func TestNoNameOfAPortIsARangeOrANumberToo(t *testing.T) {
	f := clauseNamed("tcp").field("dport")
	for name := range services {
		if name != strings.ToLower(name) {
			t.Errorf("%q is not in lower case", name)
		}
		if first, last, ok := f.splitRange(name); ok {
			_, wrongFirst := f.parseDigits(first)
			_, wrongLast := f.parseDigits(last)
			if wrongFirst == nil && wrongLast == nil {
				t.Errorf("%q is a port, and the range from %s to %s", name, first, last)
			}
		}
	}
}

// A suggestion for a word in the place of a clause proposes a protocol of UDP by udp.
func TestEachServiceOfUDPIsAService(t *testing.T) {
	for _, name := range datagrams {
		if services[name] == 0 {
			t.Errorf("%q is no service", name)
		}
	}
}

// A number of a name is written into its field without a check.
func TestNumbersOfNamesFitTheirFields(t *testing.T) {
	for i := range clauses {
		for j := range clauses[i].fields {
			f := &clauses[i].fields[j]
			for _, name := range slices.Sorted(maps.Keys(f.names())) {
				if n := f.names()[name]; n > ones(f.bits) {
					t.Errorf("%s %s %s is %d, which has more than %d bits", clauses[i].name, f.name, name, n, f.bits)
				}
			}
		}
	}
	for name, n := range icmpTypes {
		if n.v4 == none && n.v6 == none || n.v4 > 255 || n.v6 > 255 {
			t.Errorf("the ICMP type %s is %d and %d", name, n.v4, n.v6)
		}
	}
}
