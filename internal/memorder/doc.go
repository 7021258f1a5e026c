// Package memorder proves the memory order of the mirror's protocol. It has tests only.
//
// machine_test.go is a memory as weak as ARMv8's. A thread runs its instructions in program order. Unless a barrier forbids
// it, a load may return an old message of its word, and a store may become visible early: the thread promises it before
// running it. This is the model Promising-ARM (Pulte, Pichon-Pharabod, Kang, Lee, Hur: Promising-ARM/RISC-V, PLDI 2019).
// Its authors proved it equal to the axiomatic model of the ARM manual. explore_test.go visits every execution of a
// program. litmus_test.go compares the machine with published results, and axiomatic_test.go with the axioms themselves,
// on random programs.
//
// The other files are the protocol: block_test.go, identity_test.go, record_test.go, history_test.go, growth_test.go,
// device_test.go, live_test.go and wait_test.go. Each of their programs is a rule of docs/mirror-format.md, written as Go
// code. mark_test.go is the rule by which the poller skips a counter unchanged by the kernel.
//
// Each barrier has a name. TestProtocolsFailWithoutAnyOneBarrier removes them one by one, and demands that some program
// fails each time. Section 13 of the same page lists the barriers.
package memorder
