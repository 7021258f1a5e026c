// Package xdp counts packets in the kernel: XDP or TCX on ingress, TCX on egress, tables of masked
// rules, one map of counters that user space reads without a system call.
//
// # From packet to counter
//
// A program makes a flat [Key] of the frame's headers, as docs/flows.md defines them, finds
// the slot of the first matching rule, by lowest (Priority, Order), and adds to that rule's
// counter of this CPU. It calls no map helper: tables and counters are mapped global data.
// Programs differ in constants (layers, masks, the interface's number), by which the
// verifier cuts the code down. Headers more than 32 KiB into the frame, or behind its first buffer,
// are not read. Programs do not see tags that hardware strips, packets that hardware steers past
// the kernel and, before Linux 6.6, egress.
//
// Bytes are layer 2 without FCS, of all buffers of a frame, or layer 3 if frames begin with IP
// (device.go). On egress a buffer of many segments counts as its segments, each with its headers
// (bpf/skb.h) and 4 bytes for a tag beside the frame.
//
// The hash of the table is secret, so that an attacker cannot choose addresses that collide.
//
// # Changes
//
// Rules are added and removed by single stores into mapped memory. A few masks are hashed; rules
// of other masks, and with ranges of ports, are in decision trees (package xdp/tree). A new layer or
// hashed mask takes new programs, which replace the old ones through the links, so that no packet
// passes uncounted, in 10 to 100 ms. Memory is used again only after an RCU grace period.
// [RuleSet.Exchange] replaces rules: one of them always decides a packet that matches both sets.
//
// # Counters
//
// A counter keeps its id over all changes of rules. Its slots are never zeroed: a new owner gets
// the difference. The map is frozen, so that no process can write it.
//
// # Restarts
//
// With [Options].PinDir maps and links are pinned. A process that dies, at any instant, leaves
// programs that count. The next [Open] adopts them with their rules and counters, completes
// interrupted changes, and exchanges programs only if its own would differ. [Attachment].Gap says
// that packets may be missing or counted twice.
//
// # Concurrency
//
// All methods of a [RuleSet] may be called from any goroutine. [RuleSet.Read] waits only for Close,
// makes no system call and allocates nothing.
// [RuleSet.Attach] uses the network namespace of the calling thread.
package xdp
