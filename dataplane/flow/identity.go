package flow

import (
	"cmp"
	"strings"
)

// anyInterface stands in an identity for every interface of the instance.
const anyInterface = "any"

// Identity returns the text of the flow's counter in the mirror: "DIRECTION on INTERFACE: MATCH", such as
// "ingress on any: tcp dport 443". Flows of one name and one identity count the same packets, and so share a
// total. The interface "any" is every interface of the instance.
func (f Flow) Identity() string {
	text := make([]byte, 0, 96)
	if int(f.Direction) < len(directionWords) {
		text = append(text, directionWords[f.Direction]...)
	}
	text = append(text, " on "...)
	text = append(text, cmp.Or(f.Interface, anyInterface)...)
	text = append(text, ": "...)
	return string(f.Match.append(text))
}

// ParseIdentity returns the direction and the interface of the text of a flow's counter. The interface is empty for
// every interface of the instance. It returns false for a text that [Flow.Identity] does not write. The mirror cuts
// a long text behind the interface.
func ParseIdentity(text string) (d Direction, iface string, ok bool) {
	word, rest, _ := strings.Cut(text, " on ")
	iface, _, found := strings.Cut(rest, ": ")
	if d.UnmarshalText([]byte(word)) != nil || !found || checkInterface(iface) != "" {
		return 0, "", false
	}
	if iface == anyInterface {
		iface = ""
	}
	return d, iface, true
}
