// Package replay counts the packets of a capture by flows. It runs the classifier, the BPF program that also counts on
// interfaces, over each frame by BPF_PROG_TEST_RUN. On a machine that cannot load BPF, the linear matcher counts instead.
//
// A [Report] accounts for every record: either a flow counted it, or it is among the unmatched ones. A frame counts with
// its original length, even if the capture has cut it.
package replay
