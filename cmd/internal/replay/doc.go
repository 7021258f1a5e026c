// Package replay counts the packets of a capture by flows: with the classifier that counts on an interface, which
// BPF_PROG_TEST_RUN runs over each frame, or with the linear matcher where the machine cannot load BPF.
//
// No record is dropped in silence: the records of a [Report] are those that a flow counted and those that no flow
// matched. A frame counts with the bytes that it had when it was captured, also if the capture has cut it.
package replay
