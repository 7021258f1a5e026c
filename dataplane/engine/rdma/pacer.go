package rdma

import (
	"sync"
	"time"
)

// burst is how much of its budget a reader may catch up on after it slept too long. On a loaded machine a timer can be that late.
const burst = 10 * time.Millisecond

// pacer is the budget of commands, shared by all devices.
type pacer struct {
	mu       sync.Mutex
	interval int64 // between two commands, in ns
	due      int64 // when the next one may begin
}

func newPacer(perSecond int) *pacer {
	return &pacer{interval: max(1, int64(time.Second)/int64(perSecond))}
}

// take takes a command from the budget and returns 0. If there is none left, it returns how long to wait.
func (p *pacer) take(now int64) (wait int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.due > now {
		return p.due - now
	}
	p.count(now)
	return 0
}

// charge takes the command of a control call from the budget. Control calls do not wait, so the readers have to.
func (p *pacer) charge(now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count(now)
}

// count takes one command from the budget. Callers must hold mu.
func (p *pacer) count(now int64) { p.due = max(p.due, now-int64(burst)) + p.interval }
