// Package tree builds decision trees that classify packets by many rules, with any masks and port ranges. The trees are data. One BPF
// program walks them, whatever the rules. A [Set] builds and changes the trees. To it, keys and rules are 64-bit words.
//
// # Memory
//
// The trees are in one block of memory, a mapped BPF map. node.go defines the format, and bpf/tree.h mirrors it. A node is a 64-bit
// word:
//   - a cut uses some bits of the packet's key as the index of the next node;
//   - a leaf is a rule, or a list of rules of which the first match wins;
//   - a fork can only be a root; it leads to several trees, of which the best match wins.
//
// A rule in a leaf may still not match. The program compares the key with the entry of the rule, which belongs to the caller.
//
// # Building
//
// The builder divides the space of keys by cuts. For each cut, it chooses the window of bits that promises the shortest walk. It stops
// at a single rule, or where a list is cheaper than another cut. A rule that would be copied to many leaves goes into a tree of
// another group instead. If a rule matches all keys of a leaf, worse rules are left out of that leaf: they are hidden.
//
// # Changes
//
// A program may walk the trees at any instant. So changed nodes are written to free memory, and a single store makes them visible.
// Replaced memory is retired. After the caller has waited for a grace period and called [Set.Reclaim], it is free again.
package tree
