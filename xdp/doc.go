// Package xdp counts packets in the kernel: by XDP or TCX on ingress, by TCX on egress. Programs decide each packet by
// masked rules, and add it to a counter that user space reads without a system call.
//
// # From packet to counter
//
// A program parses the headers of a frame into a flat [Key], as docs/flows.md defines them. It finds the first rule that
// matches, by the lowest (Priority, Order), and adds the packet to this CPU's slot of that rule's counter.
//
// Rules and counters are mapped global data, so no packet calls a map helper. Programs of different hooks differ in
// constants (layers, masks, the number of the interface); the verifier removes the code that these constants exclude.
//
// Programs do not see tags that hardware strips, packets that hardware steers past the kernel, headers more than 32 KiB
// into a frame or behind its first buffer, and, before Linux 6.6, egress.
//
// Bytes are layer 2 without FCS, of all buffers of a frame. Frames that begin with IP count as layer 3 (device.go). On
// egress a buffer of many segments counts as its segments, each with its headers (bpf/skb.h), and a VLAN tag beside the
// frame counts as 4 bytes.
//
// # The classifier
//
// Rules of a few masks are in a hash table. Rules of other masks, and rules with ranges of ports, are in decision trees
// (package xdp/tree). The key of the hash is secret: an attacker cannot choose addresses that collide. docs/classifier.md
// gives the reasons and the cost.
//
// # Changes
//
// A change of rules is a few stores into mapped memory. A layer or a hashed mask that programs do not know takes new
// programs, which replace the old ones through their links in 10 to 100 ms. No packet passes uncounted meanwhile. Freed
// memory is used again only after an RCU grace period.
//
// [Datapath.Exchange] replaces rules. Throughout, a packet that an old and a new rule match counts for one of the two.
//
// # Counters
//
// A counter keeps its number when rules change. Its slots are never zeroed: a new owner's count begins at the value that it
// finds. The map of the slots is frozen, so that no process can write to it.
//
// # Restarts
//
// With [Options].PinDir, maps and links are pinned. A process that dies, at any instant, leaves programs that count. The
// next [Open] adopts them with their rules and counters, completes a change that was cut short, and exchanges the programs
// only if its own would differ. The ledger (ledger.go) knows on which hooks packets may have passed uncounted.
//
// # Concurrency
//
// All methods of a [Datapath] may be called from any goroutine. [Datapath.Read] waits for nothing but Close, makes no system
// call and allocates nothing. Methods that take the name of an interface look it up in the network namespace of the
// calling thread.
package xdp
