// Package demo is the first thing that a newcomer runs: two network
// namespaces, veth pairs between them, real traffic over many flows, the real
// plugin process counting it, and at the end the sent packets and bytes against the
// counts in the mirror, flow by flow.
//
// The two columns share nothing. Sent counts the frames that the kernel took from
// the senders (package lab: sendmmsg's return values; for the kernel's own TCP, a packet
// socket where the frames leave). Counted is read from the mirror as any
// reader would; no map and no call to the plugin is looked at.
//
// With Options.Backend "rdma" the flow tables of an RDMA NIC count, over a NIC that is a
// program: the uverbs kernel of ibv/ibvtest below the host's libraries, which looks at the
// packets of the near end. A second instance counts the same traffic by XDP, so that there are
// three columns that share nothing.
//
// The near ends of the pairs, where flowtally counts, are in the namespace of
// the calling process: [Run] is meant for a process that lab.Isolate has moved into
// one of its own, so that the plugin that it starts is there too. The far ends are
// in a second namespace. Both namespaces end with the process.
package demo
