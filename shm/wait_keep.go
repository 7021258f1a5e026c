package shm

import "golang.org/x/sys/unix"

// What one of the group can do to the page beside lying in it: cut it short, so
// that the writer sees no lease, and make it longer, or reserve space behind its
// end (fallocate(2), FALLOC_FL_KEEP_SIZE), which fills the tmpfs. The writer, whose
// file it is, sets its length back.

// due tells whether it is time to look at the page's length again: once in
// leaseLength, so that cycles with nothing wrong make no system call.
func (l *lease) due(now int64) bool { return now-l.keptAt >= leaseLength || now < l.keptAt }

// keep looks at the page's length, and has it set back where it is another.
func (l *lease) keep(now int64) {
	l.keptAt = now
	var st unix.Stat_t
	if err := unix.Fstat(int(l.file.Fd()), &st); err != nil {
		return
	}
	whole := st.Size == waitLength && int64(st.Blocks) <= l.blocks
	switch {
	case whole && l.lost:
		// Who sleeps may have raised the lease on the page that was lost, and
		// raises it again within leaseRenewal.
		l.lost, l.until = false, max(l.until, now+leaseLength)
	case !whole && l.mending.TryLock():
		l.tell(&st)
		go l.mend()
	}
}

// mend sets the page's length back, and frees what is reserved behind it; tmpfs does
// so at the same length too (shmem_setattr, mm/shmem.c). It is not done in the cycle,
// because freeing takes half as long as filling took. What fails is tried again in leaseLength.
func (l *lease) mend() {
	defer l.mending.Unlock()
	_ = l.file.Truncate(waitLength)
}

// tell warns once: who does it once a second is not to fill the log.
func (l *lease) tell(st *unix.Stat_t) {
	if l.told {
		return
	}
	l.told = true
	l.log.Warn("the length of the page of waiters was changed by one of its group: it is set back, now and whenever that happens, once a second at most",
		"path", l.path, "length", st.Size, "reserved", int64(st.Blocks)*512)
}

// close ends what keeps the page. Its mapping lives as long as the lease is referred to.
func (l *lease) close() {
	l.mending.Lock()
	defer l.mending.Unlock()
	_ = l.file.Close()
}
