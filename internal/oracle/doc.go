// Package oracle decides which flow counts a packet, exactly as docs/flows.md says. It compares the packet with one flow after
// the other, field by field.
//
// Tests compare every classifier with the oracle, so it must share no code with them, and must not turn sets and
// ranges into masks as they do. If it differs from a classifier, one of the two is wrong, or docs/flows.md is.
//
// The commands explain and replay use it, too: explain for its reasons, both for their decisions on a host without BPF.
package oracle
