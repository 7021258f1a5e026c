package view

import (
	"cmp"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// OfQueuePairs returns the conditions about queue pairs and reserved words. It goes by the prefix of their codes.
func OfQueuePairs(conditions []dataplane.Condition) (out []dataplane.Condition) {
	for _, c := range conditions {
		if code := string(c.Code); strings.HasPrefix(code, "queue-pair-") || strings.HasPrefix(code, "words-") {
			out = append(out, c)
		}
	}
	return out
}

// queuePairJSON is one queue pair in the JSON of queue-pairs list; a missing address is null.
type queuePairJSON struct {
	Name        string                  `json:"name"`
	Device      string                  `json:"device"`
	Port        uint8                   `json:"port"`
	Type        dataplane.QueuePairType `json:"type"`
	State       string                  `json:"state"`
	Local       *string                 `json:"local"`
	Peer        *string                 `json:"peer"`
	Backend     flow.Backend            `json:"backend"`
	Mode        string                  `json:"mode"`
	Counters    []completionCounterJSON `json:"counters"`
	Rejected    []sourceRejectionJSON   `json:"rejected"`
	Outstanding int                     `json:"outstanding"`
}

type completionCounterJSON struct {
	Name       string                `json:"name"`
	Operations []dataplane.Operation `json:"operations"`
}

type sourceRejectionJSON struct {
	Source string `json:"source"`
	Reason string `json:"reason"`
}

// QueuePairs prints queue pairs, reserved words, and the conditions below.
func QueuePairs(w io.Writer, asJSON bool, pairs []dataplane.QueuePairState, words []dataplane.ReservedWords, conditions []dataplane.Condition, now time.Time) error {
	if !asJSON {
		text := renderQueuePairs(pairs)
		switch {
		case len(words) > 0 && len(pairs) > 0:
			text += "\n" + renderWords(words, now)
		case len(words) > 0:
			text = renderWords(words, now)
		}
		return printAbove(w, text, conditions, now)
	}

	out := make([]wordsJSON, len(words))
	for i, r := range words {
		out[i] = wordsJSON{r.Name, string(r.State), r.Since}
	}
	return format.JSON(w, QueuePairsJSON{1, queuePairsJSON(pairs), out, conditionsJSON(conditions)})
}

func queuePairsJSON(pairs []dataplane.QueuePairState) []queuePairJSON {
	out := make([]queuePairJSON, len(pairs))
	for i, q := range pairs {
		j := queuePairJSON{
			Name:        q.Name,
			Device:      q.Device,
			Port:        q.Port,
			Type:        q.Type,
			State:       q.State,
			Local:       addressText(q.Local),
			Peer:        addressText(q.Peer),
			Backend:     q.Source.Backend,
			Mode:        q.Source.Modes(),
			Counters:    make([]completionCounterJSON, len(q.Counters)),
			Rejected:    make([]sourceRejectionJSON, len(q.Rejected)),
			Outstanding: q.Outstanding,
		}
		for k, c := range q.Counters {
			j.Counters[k] = completionCounterJSON{c.Name, c.Operations}
		}
		for k, r := range q.Rejected {
			j.Rejected[k] = sourceRejectionJSON{r.Backend, r.Reason}
		}
		out[i] = j
	}
	return out
}

// wordsJSON is the reserved words of one counter. State is free, taken or abandoned.
type wordsJSON struct {
	Name  string    `json:"name"`
	State string    `json:"state"`
	Since time.Time `json:"since"`
}

// QueuePairsJSON is the output of queue-pairs list -o json. Programs read it: fields are only added.
type QueuePairsJSON struct {
	Schema     int             `json:"schema"`
	QueuePairs []queuePairJSON `json:"queue_pairs"`
	Words      []wordsJSON     `json:"words"`      // reserved for other programs
	Conditions []conditionJSON `json:"conditions"` // about queue pairs and reserved words
}

// addressText returns the text of an address, or nil without one.
func addressText(a dataplane.QueuePairAddress) *string {
	if a == (dataplane.QueuePairAddress{}) {
		return nil
	}
	text := a.String()
	return &text
}

// renderQueuePairs returns a line for each queue pair. Below it are its own address, the peer's address, the operations
// of each counter, and the reasons against better sources. A reason shared by all appears only once, at the end.
func renderQueuePairs(pairs []dataplane.QueuePairState) string {
	all := make([][]dataplane.Rejection, 0, len(pairs))
	for _, q := range pairs {
		if len(q.Counters) > 0 {
			all = append(all, q.Rejected)
		}
	}
	shared := SharedRejections(all)

	t := format.Table{Heading: []string{"QUEUE PAIR", "DEVICE", ">PORT", "TYPE", "STATE", "COUNTED BY", ">OUTSTANDING"}}
	for _, q := range pairs {
		state := cmp.Or(q.State, "no device")
		source := strings.TrimSpace(string(q.Source.Backend) + " " + q.Source.Modes())
		t.Add(q.Name, q.Device, strconv.Itoa(int(q.Port)), string(q.Type), state, format.OrDash(source), strconv.Itoa(q.Outstanding))

		if text := addressText(q.Local); text != nil {
			t.Note("  address " + *text)
		}
		if text := addressText(q.Peer); text != nil {
			t.Note("  peer " + *text)
		}
		for _, k := range q.Counters {
			t.Note("  counter " + k.Name + ": " + operationsText(k.Operations))
		}
		for _, r := range q.Rejected {
			if !slices.Contains(shared, r) {
				t.Note("  not " + r.Backend + ": " + r.Reason)
			}
		}
	}
	return t.Render() + renderShared(shared)
}

func operationsText(operations []dataplane.Operation) string {
	words := make([]string, len(operations))
	for i, op := range operations {
		words[i] = string(op)
	}
	return strings.Join(words, ", ")
}

// renderWords returns a line for each counter of reserved words.
func renderWords(words []dataplane.ReservedWords, now time.Time) string {
	t := format.Table{Heading: []string{"RESERVED WORDS", "STATE", ">FOR"}}
	for _, r := range words {
		t.Add(r.Name, string(r.State), format.Age(max(0, now.Sub(r.Since))))
	}
	return t.Render()
}

// PostedJSON is the output of queue-pairs post -o json. Programs read it: fields are only added.
type PostedJSON struct {
	Schema    int    `json:"schema"`
	QueuePair string `json:"queue_pair"`
	Operation string `json:"operation"`
	Completed uint64 `json:"completed"`
	Errors    uint64 `json:"errors"`
}

// Posted prints the completions of posted operations.
func Posted(w io.Writer, asJSON bool, name, operation string, posted dataplane.Posted) error {
	if asJSON {
		return format.JSON(w, PostedJSON{1, name, operation, posted.Completed, posted.Errors})
	}
	t := format.Table{Heading: []string{"QUEUE PAIR", "OPERATION", ">COMPLETED", ">ERRORS"}}
	t.Add(name, operation, format.Count(posted.Completed), format.Count(posted.Errors))
	_, err := io.WriteString(w, t.Render())
	return err
}
