package dataplane

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/spelling"
)

// The largest numbers that any queue pair can have. Each device checks its own, lower limits.
const (
	mostDeviceName = 63 // IBV_SYSFS_NAME_MAX without its NUL
	mostGIDIndex   = 255
	mostDepth      = 1 << 15
	mostMessage    = 1 << 24
)

// QueuePairError is one broken rule of a queue pair. It satisfies
// errors.Is(err, ErrInvalid).
type QueuePairError struct {
	Index     int    // in Config.QueuePairs
	QueuePair string // its name
	Field     string // "type", "counters[0].name", "peer.qpn"
	Cause     string // the broken rule
	Fix       string // the next step
}

func (e *QueuePairError) Error() string {
	return fmt.Sprintf("queue pair %q: %s: %s; %s", e.QueuePair, e.Field, e.Cause, e.Fix)
}

// Is makes errors.Is(err, ErrInvalid) true.
func (e *QueuePairError) Is(target error) bool { return target == ErrInvalid }

// QueuePairErrors returns the part of [Config.Validate] about QueuePairs, for callers that show the place of each mistake.
func (c Config) QueuePairErrors() []*QueuePairError {
	if len(c.QueuePairs) == 0 {
		return nil // spare the map of all flow names: there may be 100,000
	}

	v := queuePairRules{cfg: c, names: make(map[string]bool), taken: make(map[string]string)}
	for _, f := range c.Flows {
		v.taken[f.Name] = "a flow"
	}
	for i, q := range c.QueuePairs {
		v.index = i
		v.q = q.WithDefaults()
		v.identity()
		v.depths()
		v.counters()
		v.connection()
	}
	return v.broken
}

// queuePairRules checks the queue pairs of a configuration one after the other.
type queuePairRules struct {
	cfg    Config
	index  int
	q      QueuePair         // the one being checked, with its defaults
	names  map[string]bool   // queue pairs checked so far
	taken  map[string]string // what owns a name in the mirror ("a flow"), by name
	broken []*QueuePairError
}

func (v *queuePairRules) bad(field, cause, fix string) {
	v.broken = append(v.broken, &QueuePairError{Index: v.index, QueuePair: v.q.Name, Field: field, Cause: cause, Fix: fix})
}

// name checks a name by the rule for flow names. It applies to every counter of the mirror.
func (v *queuePairRules) name(field, name string) {
	var broken *flow.FieldError
	if errors.As(flow.ValidateName(name), &broken) {
		v.bad(field, broken.Cause, broken.Fix)
	}
}

// word checks that a setting has one of its known words.
func (v *queuePairRules) word(field, word string, words []string) {
	if slices.Contains(words, word) {
		return
	}
	fix := "use " + strings.Join(words, ", ")
	if near := spelling.Nearest(word, words); near != "" {
		fix = fmt.Sprintf("did you mean %q?", near)
	}
	v.bad(field, fmt.Sprintf("%q is not one of its words", word), fix)
}

func (v *queuePairRules) number(field string, n, least, most int) {
	if n < least || n > most {
		v.bad(field, fmt.Sprintf("%d is out of range", n), fmt.Sprintf("use %d to %d", least, most))
	}
}

// identity checks the name of the queue pair, its device, its type and its source.
func (v *queuePairRules) identity() {
	v.name("name", v.q.Name)
	if v.names[v.q.Name] {
		v.bad("name", fmt.Sprintf("%q is there already", v.q.Name), "rename one of them")
	}
	v.names[v.q.Name] = true

	switch d := v.q.Device; {
	case d == "":
		v.bad("device", "it is empty", "name one that `rdma dev` or `flowtally doctor` lists")
	case len(d) > mostDeviceName || d == "." || d == ".." || strings.ContainsFunc(d, func(r rune) bool { return r <= ' ' || r == '/' || r == 0x7f }):
		v.bad("device", fmt.Sprintf("%q is no name of a device", d), "name one that `rdma dev` or `flowtally doctor` lists")
	}

	v.word("type", string(v.q.Type), texts(QueuePairTypes()))
	v.word("source", string(v.q.Source), texts(CompletionSources()))
}

func (v *queuePairRules) depths() {
	v.number("gid_index", v.q.GIDIndex, 0, mostGIDIndex)
	v.number("send_depth", v.q.SendDepth, 0, mostDepth)
	v.number("receives", v.q.Receives, -1, mostDepth)
	v.number("message_size", v.q.MessageSize, 0, mostMessage)
}

func (v *queuePairRules) counters() {
	fed := make(map[Operation]bool)
	for i, k := range v.q.Counters {
		at := fmt.Sprintf("counters[%d].", i)
		v.name(at+"name", k.Name)
		if has := v.taken[k.Name]; has != "" && k.Name != "" {
			v.bad(at+"name", fmt.Sprintf("%q is the name of %s already", k.Name, has), "rename one of them: counters and flows have one name space")
		}
		v.taken[k.Name] = "a counter"
		if len(k.Operations) == 0 {
			v.bad(at+"operations", "no operation is named", "name at least one, as [send]")
		}
		for j, op := range k.Operations {
			v.operation(fmt.Sprintf("%soperations[%d]", at, j), op, fed)
		}
	}
}

func (v *queuePairRules) operation(field string, op Operation, fed map[Operation]bool) {
	words := texts(Operations())
	switch byCQ := v.q.Source != SourceAuto && v.q.Source != SourceCompCntr; {
	case op == "":
		v.bad(field, "the operation is empty", "use "+strings.Join(words, ", "))
	case !slices.Contains(words, string(op)):
		v.word(field, string(op), words)
	case fed[op]:
		v.bad(field, fmt.Sprintf("%s is counted twice", op), "an operation feeds at most one counter of its queue pair: leave one out")
	case op != Send && op != Recv && !v.q.Type.RDMA():
		v.bad(field, fmt.Sprintf("a queue pair of type %s has no %s", v.q.Type, op), "leave it out, or use type rc, or srd on EFA")
	case op.Remote() && byCQ:
		v.bad(field, fmt.Sprintf("%s leaves no completion in a queue here, so that %s cannot count it", op, v.q.Source), "use source comp_cntr, or count it at the peer")
	}
	fed[op] = true
}

// connection checks the other end: a peer elsewhere, or another queue pair of the configuration.
func (v *queuePairRules) connection() {
	q := v.q
	if q.Peer != nil {
		q.Peer.check(func(field, cause, fix string) { v.bad("peer."+field, cause, fix) })
	}

	switch {
	case q.Type == RawPacket && q.Peer != nil:
		v.bad("peer", "a queue pair of type raw_packet has no other end", "leave it out")
	case q.Type == RawPacket && q.Connect != "":
		v.bad("connect", "a queue pair of type raw_packet has no other end", "leave it out")
	case q.Peer != nil && q.Connect != "":
		v.bad("connect", "there is a peer already", "leave one out")
	case q.Connect != "":
		v.connect()
	}
}

// connect checks the queue pair of the configuration that this one names as its other end.
func (v *queuePairRules) connect() {
	q := v.q
	at := slices.IndexFunc(v.cfg.QueuePairs, func(o QueuePair) bool { return o.Name == q.Connect })
	if at < 0 {
		fix := "name one that is listed"
		if near := spelling.Nearest(q.Connect, v.queuePairNames()); near != "" {
			fix = fmt.Sprintf("did you mean %q?", near)
		}
		v.bad("connect", fmt.Sprintf("there is no queue pair %q", q.Connect), fix)
		return
	}

	other := v.cfg.QueuePairs[at].WithDefaults()
	if other.Type != q.Type {
		v.bad("connect", fmt.Sprintf("%q is of type %s, and this one of type %s", other.Name, other.Type, q.Type), "connect two of one type")
		return
	}
	if other.MessageSize != q.MessageSize { // a message longer than the receive buffer of the peer fails
		v.bad("connect", fmt.Sprintf("%q has message_size %d, and this one %d (0: the default)", other.Name, other.MessageSize, q.MessageSize), "give both ends one message_size")
		return
	}
	if q.Type == RC {
		v.oneToOne(other)
	}
}

// oneToOne checks that neither end of a reliable connection has a second peer.
func (v *queuePairRules) oneToOne(other QueuePair) {
	if other.Peer != nil || other.Connect != "" && other.Connect != v.q.Name && other.Name != v.q.Name {
		v.bad("connect", fmt.Sprintf("%q has another end already", other.Name), "connect each to one other")
		return
	}
	for _, o := range v.cfg.QueuePairs[:v.index] {
		if o.Connect == other.Name && o.Name != other.Name {
			v.bad("connect", fmt.Sprintf("%q is connected to %q already", other.Name, o.Name), "connect each to one other")
			return
		}
	}
}

func (v *queuePairRules) queuePairNames() []string {
	names := make([]string, len(v.cfg.QueuePairs))
	for i, q := range v.cfg.QueuePairs {
		names[i] = q.Name
	}
	return names
}

// texts returns words of any string type as strings.
func texts[W ~string](words []W) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = string(w)
	}
	return out
}
