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
//   - shm.wait.none: a poll cycle of 4,096 counters by a writer that would wake
//     waiters, and has none; against a writer that was told to wake nobody.
package shmrows
