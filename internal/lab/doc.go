// Package lab builds the places in which real packets are counted: network
// namespaces, veth pairs between them, senders that count the sent frames
// exactly, and observers that count the same traffic by other means.
//
// # Lifetimes
//
// Everything made here is gone after Close, also when a constructor fails half
// way: a namespace dies with its last descriptor, and takes its interfaces
// along. Anonymous namespaces and their pairs therefore vanish with the
// process even on kill -9; a named namespace leaves its name in /run/netns then.
//
// # Threads
//
// [Netns.Do] runs a function on a thread of its own that is moved into the
// namespace and back; where moving back fails the thread is discarded with its
// goroutine. Nothing else here moves the caller's thread. Methods may be called
// from any goroutine; a [Sender] and an [Observer] by one goroutine at a time.
//
// # Sent frames
//
// A frame is sent when the kernel took it from the sender and said so: the
// return value of sendmmsg, nothing else. It is exact over veth on these
// kernels because veth_xmit and netif_rx report a full ring or backlog to the
// caller: an AF_PACKET socket gets ENOBUFS for that very frame, which is then not
// counted and sent again. See [Sender] for the measurement.
package lab
