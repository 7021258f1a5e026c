package dataplane

import (
	"fmt"
	"time"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// ReservedWords are words in shared memory that a program of another owner feeds: its RDMA device writes the
// completions of its own queue pairs there, or the program itself does. They are the value of one counter of the mirror.
// The program takes them by words.Take of shm/words, or by ft_words_take in C, on the socket beside the mirror
// ([MirrorConfig.WordsMode]). It can write those words and no others.
type ReservedWords struct {
	// Name of the counter in the mirror, in one name space with the flows.
	Name    string
	Counter Handle
	State   WordsState
	Since   time.Time // of the state
}

// WordsState says whether a program has reserved words.
type WordsState string

const (
	// WordsFree: no program has them. The counter has no value, or the last one of a program that gave them back.
	WordsFree WordsState = "free"
	// WordsTaken: a program has them.
	WordsTaken WordsState = "taken"
	// WordsAbandoned: the program ended without giving them back. Its last values stay. After the cool-down of the
	// mirror (1 s) another program can take words of the counter, in other memory.
	WordsAbandoned WordsState = "abandoned"
)

// WordsErrors returns every rule that the names of reserved words break: part of Validate.
func (c Config) WordsErrors() (errs []error) {
	if len(c.Words) == 0 {
		return nil // the names of 100,000 flows are not gathered for that
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
