// Package overlap finds, in a large set, the flows that overlap a given one ([Index]), and decides which of overlapping flows
// wins ([Rank]). Two flows overlap if some packet matches both.
package overlap
