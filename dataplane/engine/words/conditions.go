package words

import (
	"fmt"

	"github.com/flowtally/flowtally/dataplane"
	shmwords "github.com/flowtally/flowtally/shm/words"
)

// Conditions lists words whose program has ended or writes nonsense, and a socket that programs cannot find.
func (s *Set) Conditions() (out []dataplane.Condition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.byName {
		switch {
		case r.state == dataplane.WordsAbandoned:
			out = append(out, dataplane.Condition{
				Code:     dataplane.CodeWordsAbandoned,
				Severity: dataplane.Medium,
				Object:   r.name,
				Since:    r.since,
				Text:     "the program that had its reserved words ended without giving them back",
				Fix:      "start the program again, or: flowtally queue-pairs release " + r.name,
			})
		case r.backwards:
			out = append(out, dataplane.Condition{
				Code:     dataplane.CodeWordsBackwards,
				Severity: dataplane.Medium,
				Object:   r.name,
				Text:     "the program that has its reserved words has written a smaller number there, or one above their limit",
				Fix:      "correct the program, which may only add to the words, and start it again",
			})
		}
	}
	if s.socketErr != nil {
		out = append(out, dataplane.Condition{
			Code:     dataplane.CodeWordsSocket,
			Severity: dataplane.Medium,
			Object:   shmwords.Path(s.opts.Path),
			Text:     fmt.Sprintf("programs cannot take reserved words: making the socket again: %v", s.socketErr),
			Fix:      "remove the cause that the text names: the socket is made again within a second",
		})
	}
	return out
}
