// Package xdp counts packets in the kernel: an XDP program on ingress, a TCX
// program on egress, one table of masked rules, one map of counters that user
// space reads without a system call. It knows keys and masks, not flow.Flow.
//
// # From packet to counter
//
// A program makes a flat [Key] of the frame's headers, as dataplane/flow says
// what a header is, finds the slot of the rule that wins on it, and adds to that
// rule's counter of this CPU. It calls no map helper: tables and counters are global
// data of the object, replaced at load by mapped maps. What differs between
// programs (layers that some rule needs, the masks, the interface's number) are
// constants of the load, by which the verifier cuts the code down. No header that
// begins more than 32 KiB into the frame, or behind its first buffer, is looked at. Not
// seen: tags that hardware strips, what hardware steers past the kernel, and, on
// kernels before 6.6, egress.
//
// A TCX program is put before the others of its chain, or, with [AttachOptions].Last, behind
// them. [RuleSet.Before] lists those that run before it, any of which can hide packets from it.
//
// Bytes are layer 2 without FCS, of all buffers of a frame, or layer 3 where frames begin
// with IP (device.go). On egress a buffer of many segments is as many packets, with headers each
// (bpf/skb.h), and the tag that the kernel holds beside the frame is in it, 4 bytes per packet. One rule counts a packet,
// the one of the lowest (Priority, Order) of those that match.
//
// The hash of the table is secret: each rule set draws its multipliers, so that an attacker
// whose addresses are banned cannot choose addresses that collide.
//
// # Changes
//
// Rules of masks that the programs know are added and removed by single stores
// into mapped memory. A new mask, a second key of a mask that had one, or a layer
// that no rule looked at before takes new programs: they are put in the old ones'
// place through the links, so that no packet passes uncounted, in 10 to 100 ms.
// An entry is never changed while a slot points at it; what a program may still look
// at is used again only after an RCU grace period. At most 64 distinct masks.
// [RuleSet.Exchange] puts rules in the place of others: no packet that matches rules
// of both sets passes undecided.
//
// # Counters
//
// A counter's id is stable over all changes of rules. Its slots are never zeroed:
// who is given one gets the value since then. The map is frozen before it is
// mapped, so that no process can write it by system call or mapping. Every value is a
// pair: the bytes are those of exactly its packets.
//
// # Restarts
//
// With [Options].PinDir maps and links are pinned. A process that dies, at any
// instant, leaves programs that count; the next [Open] takes up maps, rules,
// counters and attachments, ends what was half done, and exchanges the programs
// only when they are not what it would load. The directory is locked by whoever has it
// open (flock, so the lock ends with the process).
//
// # Who may call what
//
// All methods of a [RuleSet] may be called from any goroutine. Changes wait for one
// another. [RuleSet.Read] waits for none of them: it makes no system call, allocates
// nothing and excludes nobody but Close. [RuleSet.Attach] and [Watch] look at
// the network namespace of the calling thread.
//
// A type of program that the kernel or the process may not load, a hook that is
// taken or a mode that a driver does not have are errors that say so and what to do
// (errors.go; probe.UnsupportedError where the answer is conclusive).
package xdp
