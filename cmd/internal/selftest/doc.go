// Package selftest checks the counts of one interface on a host in production. It sends and receives packets of its own,
// and compares their number with the counts of flows added only for the test.
//
// The parts are:
//   - egress: frames of the experimental EtherType 0x88b5, without and with a tag
//   - ingress: echo replies of a neighbor, or the frames of a selftest on another host
//   - RDMA: operations between two queue pairs of one device
//
// A part that cannot be tested says why.
//
// The flows belong to a temporary instance in this process, or to the running instance if that counts on the interface.
// Instances and flows have fixed names, so the next selftest finds and removes what a killed one has left.
package selftest
