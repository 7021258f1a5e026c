// Package members keeps sets of prefixes in memory that BPF programs read. A program asks one question of a set: is this address in
// it? bpf/members.h asks it in a program, and [Lookup] in Go, of the same words.
//
// # Memory
//
// layout.go lays out the tables of a set, and the words of each. An address of IPv4 takes at most four loads, of
//   - the root: the place of the tables, or 0 for an empty set;
//   - the top: by the first 16 bits, no element, an element that covers all, or a line;
//   - the line: by the next 8 bits, a code of two bits: none, all, or some;
//   - a slot of a hash table: by the first 27 bits, which of the 32 addresses behind them are in the set.
//
// From 65,536 elements on there is a line for each 16 bits, and no place depends on a load: the CPU waits for all at once. A smaller set
// has lines for those of its elements, and the top has their numbers.
//
// An IPv6 address has 26 levels, 5 lengths of prefixes in each. A filter by the hash of the first 32 bits has the levels that may have
// an element there. A slot of a level has 32 bits as above, and the number of an entry with the other bits of the address.
//
// # Overlaps
//
// A set has each prefix once, whatever covers it. Beside the words that programs read, the set keeps which prefixes it has. So the
// words of a region are made again from what is left when an element goes.
//
// # Changes
//
// Programs read at any instant. Each store leaves the words right for every address, and an address that is in the set before and after
// a change is never missed. A program that began before an element was added may miss it, and it may be slow. So an element that
// overlaps a new one is removed only after a grace period ([ErrFresh]). The caller waits for it, and then calls [Set.Reclaim]. Lines
// and entries of removed elements are used again after Reclaim, too. A slot needs no grace period: one store changes all of it.
//
// A program finds a set when [Set.Publish] stores the place of its tables, and [Retract] empties it by one store. A set that replaces
// another one is built beside it, and takes its place by one store. A set that has no room grows so: the caller fills a greater one,
// with a shape and constants of its own, while the set of before stays as it is, and loads the programs with those constants.
package members
