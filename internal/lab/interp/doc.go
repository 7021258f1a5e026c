// Package interp follows a packet through the instructions of a BPF program, as the kernel has them after verification, and
// counts what a CPU would execute: instructions, calls, and the cache lines of maps that they touch. Unlike a clock, these are the
// same on every processor.
//
// It runs what the programs of this repository consist of. An unknown instruction, a helper without a Go function, or an
// access outside of memory is an error.
package interp
