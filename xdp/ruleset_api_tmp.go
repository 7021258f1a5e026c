package xdp

import (
	"context"
	"errors"
)

// RuleSet is one table of rules and one map of counters, shared by every
// interface it is attached to.
type RuleSet struct{}

var errSoon = errors.New("in work")

func Open(o Options) (*RuleSet, error)                         { return nil, errSoon }
func (rs *RuleSet) AllocCounter(owner string) (Counter, error) { return Counter{}, errSoon }
func (rs *RuleSet) FreeCounter(id uint32) error                { return errSoon }
func (rs *RuleSet) Counters() []CounterInfo                    { return nil }
func (rs *RuleSet) Add(rules ...Rule) error                    { return errSoon }
func (rs *RuleSet) Remove(rules ...Rule) error                 { return errSoon }
func (rs *RuleSet) Rules() []Rule                              { return nil }
func (rs *RuleSet) Port(ifname string) (uint16, error)         { return 0, errSoon }
func (rs *RuleSet) Attach(ifname string, o AttachOptions) ([]Attachment, error) {
	return nil, errSoon
}
func (rs *RuleSet) Detach(ifname string) error                              { return errSoon }
func (rs *RuleSet) Attachments() []Attachment                               { return nil }
func (rs *RuleSet) Read(ids []uint32, dst []Pair) error                     { return errSoon }
func (rs *RuleSet) ReadColumns(ids []uint32, packets, bytes []uint64) error { return errSoon }
func (rs *RuleSet) Stats() Stats                                            { return Stats{} }
func (rs *RuleSet) Close() error                                            { return errSoon }
func (rs *RuleSet) Destroy() error                                          { return errSoon }

// LinkEvent is a change of a network interface.
type LinkEvent struct {
	Kind    LinkEventKind
	Name    string
	OldName string // LinkRenamed
	Index   int
}

// LinkEventKind says what changed.
type LinkEventKind string

const (
	LinkUp      LinkEventKind = "up"
	LinkDown    LinkEventKind = "down"
	LinkAdded   LinkEventKind = "added" // new, or returned: the index may differ
	LinkRemoved LinkEventKind = "removed"
	LinkRenamed LinkEventKind = "renamed"
)

// Watch streams changes of links in the network namespace of the calling
// thread until ctx ends; the channel is closed then.
func Watch(ctx context.Context) (<-chan LinkEvent, error) { return nil, errSoon }
