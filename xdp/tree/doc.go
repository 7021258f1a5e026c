// Package tree is a classifier of packets by many rules of any masks and port ranges: decision trees as data, which
// one BPF program walks, and the builder that makes and changes them. It knows keys and rules as 64-bit words.
//
// # Memory
//
// The trees are 64-bit words of one memory, a mapped BPF map. The format is in node.go, and bpf/tree.h mirrors it. A
// node is one word: a cut, which takes some bits of the packet's key as the index of the next node; a rule; a
// list of rules, of which the first that matches wins; or at the root a fork into several trees. A rule in a tree may match: the
// program compares the key with the rule's entry, which the caller keeps.
//
// # Building
//
// The builder cuts the keys' space by the window of bits that is estimated to leave the least work, until one rule
// is left, or rules that a list serves better. A rule that would be in many leaves goes to a tree of its own group.
// Behind a rule that matches all keys of a leaf there are no further rules.
//
// # Changes
//
// A program may walk the trees at any instant. Changed nodes are written into free memory, and appear by one store of
// the word that leads to them. Memory that was replaced is retired, and free again after a grace period, when the
// caller calls [Set.Reclaim].
package tree
