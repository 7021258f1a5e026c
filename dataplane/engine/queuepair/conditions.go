package queuepair

import (
	"fmt"

	"github.com/flowtally/flowtally/dataplane"
)

// Changed signals that Conditions may have changed.
func (s *Set) Changed() <-chan struct{} { return s.changed }

// Conditions lists the queue pairs that do not work, and those whose source has failed.
func (s *Set) Conditions() (out []dataplane.Condition) {
	for _, q := range s.all {
		out = append(out, q.conditions()...)
	}
	return out
}

// conditions returns the conditions of one queue pair. A lost device hides the others, which are its consequence.
func (q *queuePair) conditions() (out []dataplane.Condition) {
	v := q.current()
	if v.lost != nil {
		return []dataplane.Condition{{
			Code:     dataplane.CodeQueuePairLost,
			Severity: dataplane.High,
			Object:   q.cfg.Name,
			Text:     fmt.Sprintf("its device %s failed or was removed, and its counters stand still: %v", q.cfg.Device, v.lost),
			Fix:      "see dmesg and `rdma link`; when the device is back the queue pair is made again, with another number, and totals go on",
		}}
	}

	if v.unconnected != "" {
		out = append(out, dataplane.Condition{
			Code:     dataplane.CodeQueuePairUnconnected,
			Severity: dataplane.High,
			Object:   q.cfg.Name,
			Text:     v.unconnected,
			Fix:      "remove the cause that the text names, then: flowtally queue-pairs connect " + q.cfg.Name + " [ADDRESS]",
		})
	}
	if v.failed != "" {
		out = append(out, dataplane.Condition{
			Code:     dataplane.CodeQueuePairError,
			Severity: dataplane.High,
			Object:   q.cfg.Name,
			Text:     v.failed,
			Fix:      "look after the peer, then connect it anew: flowtally queue-pairs connect " + q.cfg.Name,
		})
	}
	if v.sourceErr != nil {
		out = append(out, dataplane.Condition{
			Code:     dataplane.CodeQueuePairSource,
			Severity: dataplane.Medium,
			Object:   q.cfg.Name,
			Text:     fmt.Sprintf("ibv_poll_cq counts it, as the better source failed: %v", v.sourceErr),
			Fix:      "restart the instance; report the device if it happens again",
		})
	}
	return out
}
