// Package shmrows holds the rows of the bench that are about the mirror, with
// its readers in Go and in C.
//
// Every row makes a mirror of its own on the tmpfs and removes it. Where a row
// needs a second thread it runs pinned to the other CPU; without one the row is
// null. Package bench says how sides are run and compared.
//
//   - shm.read: one counter read with Counter.Load while nothing is published,
//     against a counter without protection: a pointer and three atomic loads of
//     adjacent words. The same loop calls both Loads through a handle, and both are
//     inlined in it.
//   - shm.read.c: the same in C: ft_load of flowtally.h, compiled here with
//     cc -O2, against a pointer and three load-acquires.
//   - shm.read.busy: Counter.Load of a latency counter that is published 1 M
//     times a second on the other CPU, against the same without the publishing.
//     CPU time of the reading thread; rounds in which the writer did not keep
//     its rate within a tenth are discarded.
//   - shm.snapshot.16k, shm.snapshot.256k: Reader.Snapshot of 256 and 4,096 full blocks
//     (with their labels), after 1,000 removals and additions, against one copy of
//     16,384 and 262,144 values.
//   - shm.publish: PublishBlock of one block (two copies are written in turn),
//     against one copy of 64 values to one place.
//   - shm.visible: PublishRecord on one CPU until Counter.Load shows it on the
//     other, there and back by two mirrors, half of it; against two words that
//     two CPUs store and load in the same way. The median of times of 8 round trips,
//     which take turns over 8 lines 128 bytes apart.
//   - shm.wait: a poll cycle of one block on one CPU until Reader.Wait, asleep on
//     the other, has returned its value; against a word in a file of the tmpfs,
//     mapped in the same way, and futex(2) alone, from Go. The median; a wake begins
//     when the kernel says of the sleeper's thread that it sleeps.
//   - shm.wait.crowd: poll cycles 10 ms apart while 4,000 threads of 8 processes sleep
//     in ft_wait until the counter has a value that it does not reach; against the same
//     threads asleep on a futex of their own. Wall time of a cycle: 1.05 is 0.95 of the
//     cycles per second.
//   - shm.wait.member: the same with two sleepers, while a member of the wait group
//     (another user, src/hostile.c) tries without a pause to write to the page, cut it,
//     punch it and link it, and wakes and moves its sleepers; against cycles without it.
//     Needs root.
//   - shm.wait.idle: poll cycles 10 ms apart of a writer that wakes, without a sleeper.
//     CPU time of the process, against a writer without a page which burns 1 % of
//     a core instead.
//   - shm.wait.idle.busy: the time to end a cycle of such a writer when cycles are
//     10 µs apart, and the CPU time of other threads of the process; against a writer
//     without a page, and 1 % of the time that passes.
package shmrows
