// Package xdp counts packets in the kernel, and drops some of them if asked to. Its BPF programs run at XDP or TCX on ingress, and
// at TCX on egress. They classify each packet by masked rules. User space reads the counters without a system call.
//
// # Who should use it
//
// Use this package in a Go program that makes its own rules and reads its own counters, for example a firewall that bans addresses
// at line rate, or a collector that meters many thousand services:
//   - You have rules as header fields and masks ([Rule]), and change them often. No change misses a packet or counts one twice.
//   - Your process reads the counters itself ([Datapath.Read]), as often as it likes.
//   - You may want programs that keep counting while your process restarts ([Options].PinDir).
//
// If you would rather write flows as text, count on RDMA NICs as well, or publish totals to other processes, use package dataplane.
// It is built on this one.
//
// The package needs Linux 6.1, or 6.6 for TCX, and CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN. [Probe] tells what a host can do. A
// program calls [Open], [Datapath.AllocCounter], [Datapath.Add], [Datapath.Attach] and [Datapath.Read], as in the example below.
//
// Parts of the package serve the rest of flowtally, and are of little use elsewhere: [Simulated], [Model], [LiveMap],
// [Options].Kernel, [Datapath.Specialize], [Datapath.NoteChange] and the clock of outages ([Moment]).
//
// # From packet to counter
//
// A program parses the headers of a frame into a flat [Key], as defined in docs/flows.md. Of the rules that match, it takes the one
// with the lowest (Priority, Order), and adds the packet to the slot of that rule's counter for this CPU.
//
// Rules and counters are memory-mapped global data, so programs call no map helper. The programs of different hooks differ in
// constants: layers, masks and the number of the interface. The verifier removes the code that these constants exclude.
//
// Programs do not see tags stripped by hardware, packets steered past the kernel by hardware, headers more than 32 KiB into a frame
// or after its first buffer, and, before Linux 6.6, egress.
//
// Bytes are layer 2 without FCS, over all buffers of a frame. Frames that begin with IP count as layer 3 (device.go). On egress, a
// buffer with many segments counts as its segments, each with its own headers (bpf/skb.h). A VLAN tag stored beside the frame counts
// as 4 bytes.
//
// # The classifier
//
// Rules with a few distinct masks are in a hash table. All other rules, and those with port ranges, are in decision trees (package
// xdp/tree). The hash is keyed by a secret, so an attacker cannot choose addresses that collide. docs/classifier.md explains the
// design and its cost.
//
// # Sets
//
// A rule may ask whether an address of the packet is in a named set of prefixes, or is not ([Datapath.OpenSets], [Membership]). A set
// has up to a million elements of IPv4 and IPv6 (package xdp/members), and costs a packet some tens of nanoseconds for each address
// that rules ask for. [Datapath.AddMembers] and its like change elements at any time, by stores into mapped memory. When they return,
// the change applies to every packet on every hook.
//
// # Changes
//
// Most changes of rules are a few stores into mapped memory. A rule may need a layer or a hashed mask unknown to the programs. Then
// new programs replace the old ones through their links, in 10 to 100 ms, and no packet passes uncounted in the meantime. Freed
// memory is reused only after an RCU grace period.
//
// [Datapath.Exchange] replaces rules. A packet that matches an old and a new rule always counts for one of them.
//
// # Counters
//
// A counter keeps its number when rules change. Its slots are never zeroed. Instead, the count of a new owner starts from their
// current value. The map of the slots is frozen, so no process can write to it.
//
// # Restarts
//
// With [Options].PinDir, maps and links are pinned. If the process dies, at any instant, its programs keep counting. The next [Open]
// adopts them with their rules and counters, and completes or undoes a change that was under way. It exchanges programs only if its
// own would differ. Sets are adopted as they are: the programs find their elements until [Datapath.OpenSets] says what the elements are
// now. The ledger (ledger.go) records on which hooks packets may have passed uncounted.
//
// # Concurrency
//
// A [Datapath] is safe for concurrent use. [Datapath.Read] makes no system call, allocates nothing, and waits only for Close and
// KeepBytes. Methods that take the name of an interface look it up in the network namespace of the calling thread.
package xdp
