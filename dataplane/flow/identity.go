package flow

import (
	"cmp"
	"strings"
)

// anyInterface means every interface of the instance, in an identity.
const anyInterface = "any"

// Identity returns the description of the flow's counter in the mirror: "DIRECTION on INTERFACE: MATCH", such as
// "ingress on any: tcp dport 443". A flow with the same name and identity as a flow of an earlier run counts the same
// packets, so it continues the total of that flow.
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

// ParseIdentity returns the direction and the interface in the output of [Flow.Identity]. The interface is empty if the flow
// counts on all of them. ok is false for any other text. It does not parse the match, because the mirror truncates long
// texts.
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
