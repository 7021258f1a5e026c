package words

// OnTotalRead makes f run when the total of words that are given back has been read, and is not kept yet. polls: a poll
// can read the words then.
func (s *Set) OnTotalRead(f func(polls bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.totalRead = func(r *reservation) {
		polls := r.sampling.TryLock()
		if polls {
			r.sampling.Unlock()
		}
		f(polls)
	}
}
