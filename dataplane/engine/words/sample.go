package words

import (
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

var _ backend.TimedCounters = (*Set)(nil)

// Name returns "rdma". A Set is the source of its counters: see backend.TimedCounters.
func (s *Set) Name() string { return "rdma" }

// Read fills dst[i] with the total of counter ids[i].
func (s *Set) Read(ids []uint32, dst []backend.Pair) error {
	var at [1]int64
	for i := range ids {
		if err := s.ReadTimed(ids[i:i+1], dst[i:i+1], at[:]); err != nil {
			return err
		}
	}
	return nil
}

// ReadTimed is Read with the times of the samples. Words with nonsense in them give no new sample, so readers see that the value
// grows old.
func (s *Set) ReadTimed(ids []uint32, dst []backend.Pair, at []int64) error {
	all := *s.byID.Load()
	for i, id := range ids {
		dst[i] = backend.Pair{}
		at[i] = 0
		if int(id) >= len(all) || all[id] == nil {
			continue
		}
		dst[i], at[i] = all[id].sample()
	}
	return nil
}

// sample returns the total and its sample time. The poller calls it.
func (r *reservation) sample() (backend.Pair, int64) {
	r.sampling.Lock()
	defer r.sampling.Unlock()
	l := r.lease.Load()
	if l == nil {
		return r.last.Load()
	}

	was, at := r.polled.Load()
	now, err := l.total(was)
	if err == nil && (now != was || r.held.Load()) {
		at = shm.Now()
		r.polled.Store(now, at)
	}
	return now, at
}
