// Package linear is the plain matcher that the classifiers are tested against.
// It says, slowly and one flow after the other, which flow counts a packet. It
// follows docs/flows.md to the letter, looks at the
// flows' own fields (port ranges included, unexpanded) and shares no code with
// any classifier: where it and a classifier differ, one of the two, or the
// comment, is wrong. The command explain takes its reasons from here, and
// counts with it where the machine cannot load BPF.
package linear
