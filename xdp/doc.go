// Package xdp counts packets in the kernel: an XDP program on ingress, a TCX
// program on egress, one table of masked rules, one map of counters that user
// space reads without a system call. It knows keys and masks, not flow.Flow.
package xdp
