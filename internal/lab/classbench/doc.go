// Package classbench generates rule sets and packets for tests and measurements of the classifiers.
//
// [Generate] and [Trace] follow the method of ClassBench: D. E. Taylor and J. S. Turner, "ClassBench: A
// Packet Classification Benchmark", IEEE/ACM Transactions on Networking 15(3), 2007. A family of filter sets
// (access control list, firewall, IP chain) is described by distributions: of protocols, of pairs of port
// classes for each protocol, of pairs of prefix lengths, and of the branching of the two address tries. The
// trace takes corners of randomly chosen filters and repeats each as often as a Pareto distribution says.
// The distributions are this package's own (families.go). They have the form of the paper's parameter
// files, and the features that the paper reports of the real sets; they are not those files.
//
// [Masked] and [Ranges] make plainer sets, of a given number of masks or with random ranges of ports, [Prefixes] makes
// the prefixes of a routing table, and [Points] makes packets that lie anywhere in the rules.
//
// The place of a rule in its set is its priority: the first rule that matches a packet decides it. Every
// function returns the same result for the same arguments, on every machine. The package keeps no state.
package classbench
