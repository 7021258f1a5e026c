// Package explain says which flow counts a packet, which flows it shadows, and why the other flows do not match. The
// classifier decides, as in package replay; the linear matcher, which shares no code with it, gives the reasons and
// must agree. It also prints the classifier that is chosen for a set of flows, and its cost.
//
// A packet is given as text, in the words of a match with one value for each field; as hex; or as a record of a
// capture.
package explain
