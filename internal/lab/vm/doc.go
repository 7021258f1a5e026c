// Package vm runs our programs and tests on other kernels than the machine's own: it fetches a
// kernel of the distribution (package archive), packs an initramfs with the files to run, and boots
// both under QEMU's own translator (TCG), without KVM and without privilege.
//
// It exists for what no fake can show: a real kernel RDMA stack (rdma_rxe under the distribution's own
// libibverbs), the oldest supported kernel, 6.1, the newest kernel of Debian, and programs that crash a kernel.
// Tests that boot a machine carry the build tag vm: `make test-vm`. Other tests have no tag.
//
// # The parts
//
//   - [Kernel] finds modules of an unpacked kernel, with their dependencies.
//   - [Image] is the initramfs: files, programs with the shared libraries they need, in cpio's newc form.
//   - [Script] is the work of the machine, [Event] a message from it: the
//     contract with the first process inside, package internal/lab/vm/init.
//   - [Machine] boots, reads the events and ends with the machine.
//
// # Output of a run
//
// Every line of the kernel's log at warning or above is an event, and fails the test unless it is
// [Log.Benign].
//
// The console of the last run and its events are kept as files in the machine's directory. A
// machine that hangs is killed when the time of its context is over. The error then holds the end
// of its console.
//
// # Trust
//
// Events come from the machine that runs our own tests, and are still decoded as input: an invalid
// line is an error.
package vm
