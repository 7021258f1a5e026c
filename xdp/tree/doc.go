// Package tree classifies packets by many rules of any masks and port ranges. The rules are in decision trees: data that one BPF
// program walks. A [Set] builds the trees and changes them. It knows keys and rules as 64-bit words.
//
// # Memory
//
// The trees are 64-bit words of one memory, a mapped BPF map. node.go has the format, and bpf/tree.h mirrors it. A node is one
// word:
//   - a cut takes some bits of the packet's key as the index of the next node;
//   - a leaf is one rule, or a list of rules, of which the first that matches wins;
//   - a fork, at the root, leads to several trees, of which the best match wins.
//
// A rule in a leaf may match or not: the program compares the key with the rule's entry, which the caller keeps.
//
// # Building
//
// The builder divides the space of keys by cuts. It chooses the window of bits that it expects to leave the least work, until
// one rule is left, or rules that are better a list. A rule that would be in many leaves goes to a tree of another group.
// Behind a rule that matches all keys of a leaf, the leaf has no further rules: they are hidden.
//
// # Changes
//
// A program may walk the trees at any instant. So changed nodes are written into free memory, and appear by one store of the
// word that leads to them. Replaced memory is retired. It is free again when the caller has waited for a grace period and
// calls [Set.Reclaim].
package tree
