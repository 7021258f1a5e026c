package shm

import (
	"fmt"

	"github.com/flowtally/flowtally/shm/words"
)

// wordsApart is the state of a device slot with words in a words file, written by another program.
const wordsApart = 1

// SlotApart takes a free slot for a counter with words in f. The slot refers to f, which keeps it mapped.
func (d *DeviceSegment) SlotApart(f *words.File) (*DeviceSlot, error) {
	s, err := d.Slot()
	if err == nil {
		s.apart = f
	}
	return s, err
}

// mostWordsFiles bounds the words files that a Reader caches for further Devices. A Device keeps its own.
const mostWordsFiles = 64

// wordsFile returns the words file of that number, mapped read-only. It asks the writer's socket unless the file is cached.
func (r *Reader) wordsFile(number uint64) (*words.Mapping, error) {
	r.mu.RLock()
	m := r.wordsByNumber[number]
	r.mu.RUnlock()
	if m != nil {
		return m, nil
	}
	m, err := words.Ask(words.Path(r.path), number, r.options.trustsPeer)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, ErrNoDevice)
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wordsByNumber == nil || len(r.wordsByNumber) >= mostWordsFiles {
		r.wordsByNumber = make(map[uint64]*words.Mapping)
	}
	r.wordsByNumber[number] = m
	return m, nil
}
