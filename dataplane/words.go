package dataplane

import (
	"fmt"
	"time"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// ReservedWords is a counter whose value another program writes. That program has queue pairs of its own, and it or its
// RDMA device counts their completions in words of shared memory.
//
// The program takes the words from the socket beside the mirror ([MirrorConfig.WordsMode]): in Go by words.Take of package
// shm/words, in C by ft_words_take. It can write these words and nothing else of the mirror.
type ReservedWords struct {
	Name    string // of the counter; no flow may have it
	Counter Handle
	State   WordsState
	Since   time.Time // of the state
}

// WordsState says whether a program has taken reserved words.
type WordsState string

const (
	// WordsFree: any program may take them. The counter keeps the value of the last program that gave them back, if any.
	WordsFree WordsState = "free"
	// WordsTaken: a program has taken them.
	WordsTaken WordsState = "taken"
	// WordsAbandoned: the program ended without giving them back, so the counter keeps its last value. Its device may
	// still write. Therefore the next program gets other memory, after a cool-down of 1 s.
	WordsAbandoned WordsState = "abandoned"
)

// WordsErrors returns the part of [Config.Validate] about Words.
func (c Config) WordsErrors() (errs []error) {
	if len(c.Words) == 0 {
		return nil // spare the map of all flow names: there may be 100,000
	}

	taken := make(map[string]string, len(c.Flows))
	for _, f := range c.Flows {
		taken[f.Name] = "a flow"
	}
	for _, q := range c.QueuePairs {
		for _, k := range q.Counters {
			taken[k.Name] = "a counter of a queue pair"
		}
	}

	if len(c.Words) > MostWords {
		errs = append(errs, fmt.Errorf("words: %d names: at most %d", len(c.Words), MostWords))
	}
	for _, name := range c.Words {
		if err := flow.ValidateName(name); err != nil {
			errs = append(errs, fmt.Errorf("words: %w", err))
		} else if has := taken[name]; has != "" {
			errs = append(errs, fmt.Errorf("words: %q is the name of %s already: rename one of them, because all counters have one name space", name, has))
		}
		taken[name] = "other words"
	}
	return errs
}
