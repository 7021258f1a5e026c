// Package vm runs our programs and tests on other kernels than the machine's
// own: it fetches a kernel of the distribution (package archive), packs it an initramfs with what
// is to run, and boots both under QEMU's own translator (TCG), without KVM and
// without privilege.
//
// It exists for two things that no fake can show: a real kernel RDMA stack
// (rdma_rxe under the distribution's own libibverbs), and the oldest kernel
// that is supported, 6.1. Its tests carry the build tag vm, because a
// machine is booted: `make test-vm`. What needs none has no tag.
//
// # The parts
//
//   - [Kernel] finds modules of an unpacked kernel, with what they depend on.
//   - [Image] is the initramfs: files, programs with the shared libraries they need, in cpio's newc form.
//   - [Script] is what the machine does, [Event] what it says about it: the
//     contract with the first process inside, package internal/lab/vm/init.
//   - [Machine] boots, reads the events and ends with the machine.
//
// # What a run leaves
//
// The console of the machine and its events are kept as files in the
// machine's directory, of the last run. A machine that hangs is killed when the time of
// its context is over; the error then holds the end of its console.
//
// # Trust
//
// Events come from the machine that
// runs our own tests, and are still decoded as input: a line that is none is an error.
package vm
