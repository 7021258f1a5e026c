// Package explain says which flow counts a packet, which flows it shadows, and why the other flows do not match. As in
// package replay, the classifier decides. The linear matcher shares no code with it, must agree, and gives the reasons.
// The package also prints the classifier chosen for a set of flows, and its cost.
//
// A packet is given in the words of a match with one value per field, in hex, or as a record of a capture.
package explain
