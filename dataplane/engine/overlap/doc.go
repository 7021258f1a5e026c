// Package overlap finds the flows of a large set that one packet can match together with a given flow: [Index]. [Rank]
// gives flows that overlap the orders by which they win.
package overlap
