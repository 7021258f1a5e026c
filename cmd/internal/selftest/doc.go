// Package selftest compares, on a host in production, the packets that one interface sends and receives with the counts
// of flows that exist for the test alone.
//
// The parts: frames of the experimental EtherType 0x88b5 that it sends (egress, also with a tag), echo replies of a
// neighbor, or the frames of a selftest on another host (ingress), and operations between two queue pairs of one RDMA
// device. A part that cannot be tested has a reason.
//
// The flows belong to a temporary instance in this process, or to a running instance where that holds the
// hooks of the interface. Both have fixed names: the next selftest removes the objects that a killed one left.
package selftest
