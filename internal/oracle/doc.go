// Package oracle decides which flow counts a packet, by the plain reading of docs/flows.md. It compares the packet with one flow
// after the other, field by field: a linear matcher.
//
// Tests compare every classifier with it. So it shares no code with any of them, and expands no range of ports to masks. Where it
// and a classifier differ, one of the two is wrong, or docs/flows.md is.
//
// The command explain takes its reasons from here. Where the host cannot load BPF, explain and replay decide by it.
package oracle
