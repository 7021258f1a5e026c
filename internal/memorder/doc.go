// Package memorder proves the memory order of the mirror's protocol. It has
// tests only.
//
// machine_test.go is a memory as weak as ARMv8's. A thread runs its instructions in program order, and
// every load may return an old message of its word unless a barrier forbids it. A store may be made
// visible before the thread has reached it (it is promised), unless a barrier forbids it. This is the
// model Promising-ARM (Pulte, Pichon-Pharabod, Kang, Lee, Hur: Promising-ARM/RISC-V, PLDI 2019), which
// its authors proved equal to the axiomatic model of the ARM manual. explore_test.go visits every
// execution of a program. litmus_test.go compares the machine with published results and
// axiomatic_test.go compares it with the axioms themselves, on random programs.
//
// The other files are the protocol: block_test.go, identity_test.go,
// record_test.go, history_test.go, growth_test.go, device_test.go, live_test.go
// and wait_test.go. Each program in them is a rule of docs/mirror-format.md as Go code, with a
// name for each barrier. TestBarriers removes each barrier in turn, and demands
// that the program then fails. Section 13 of that page lists the barriers.
package memorder
