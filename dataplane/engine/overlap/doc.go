// Package overlap finds, in a large set, the flows that overlap a given one ([Index]), and decides which of overlapping flows
// wins ([Rank]). Two flows overlap if some packet matches both.
//
// # Cost
//
// The engine relates each new flow to those that are there, so a search must not look at all of them. The index is a tree.
// Each node divides its flows by one bit of one property of packets: a field outside or inside a tunnel, the protocol
// above IP, the interface. It takes the property that spares most comparisons among its own flows. Exact values,
// prefixes, ranges and masks are all treated alike, and so are all fields.
//
// A flow with a set is in the tree once for each value. With several sets it is there once for each combination, up to 256.
// Beyond, only the sets whose values tell most are taken apart.
//
// Flows that all overlap are compared pair by pair, as their relations are noted pair by pair. So are flows whose masks look
// at unlike bits, because no bit tells many of them apart. Then boxes of numbers are compared, which is faster than
// flow.Overlap, and only flows whose boxes meet get there.
package overlap
