package xdp

import (
	"errors"
	"sync/atomic"

	"github.com/flowtally/flowtally/internal/kernel"
)

// The ledger records outages: times in which packets may have passed uncounted. It is a pinned map of its own, which no program
// reads. In 64-bit words:
//
//	header  magic, clock
//	sites   2 words for each hook of each numbered interface: lost << 32 | state, since << 32 | index of the interface
//
// A site is one hook of one interface. It has one of three states:
//
//	unused   no counter relies on it
//	covered  our program counts its packets
//	open     counters rely on it, but packets may pass uncounted: an outage
//
// The clock ticks whenever a site becomes covered, and when an outage ends in another way. since is the tick at which the site last
// became covered. lost is the tick at which its last outage ended. A count that began before lost may lack packets.
//
// A site changes state by a single store, after all stores it depends on. If the process dies before it, the site keeps its old
// state. The next process then finds a covered site without a program, or a program on an uncovered site, and corrects the
// state (adoptSites). A tick nobody used does no harm.
const (
	ledgerMagic  = 0x72656764656c7466 // "ftledger"
	ledgerHeader = 2
	ledgerWords  = 2 // of a site
)

func ledgerBytes() int { return pages(8 * (ledgerHeader + 2*maxPorts*ledgerWords)) }

// Moment is a tick of the ledger's clock. See Datapath.Lost.
type Moment uint32

// After reports whether m is later than o. Compare moments by After alone, because the clock wraps around.
func (m Moment) After(o Moment) bool { return int32(m-o) > 0 }

type siteState uint32

const (
	siteUnused siteState = iota
	siteCovered
	siteOpen
)

// ledger is the mapped ledger, with totals over its sites. Datapath.mu guards it.
type ledger struct {
	words []uint64
	lost  map[Hook]Moment   // the latest lost of all sites
	open  map[Hook]int      // the number of open sites
	ahead func(what string) // Kernel.Store, called before each store so that a test can end the process there
}

// ledgerOf reads a ledger. It fills an empty one from the records of interfaces, in which versions before the ledger noted the
// sites they covered.
func ledgerOf(words []uint64, ports *meta, k kernel.Kernel) *ledger {
	l := &ledger{
		words: words,
		lost:  make(map[Hook]Moment),
		open:  make(map[Hook]int),
		ahead: func(string) {},
	}
	if k != nil {
		l.ahead = k.Store
	}
	if words[0] != ledgerMagic {
		clear(words)
		l.takeFromPorts(ports)
		atomic.StoreUint64(&words[0], ledgerMagic)
	}

	for port := range uint16(maxPorts) {
		for _, at := range []Hook{HookIngress, HookEgress} {
			r := l.site(hookKey{port, at})
			if r.lost().After(l.lost[at]) {
				l.lost[at] = r.lost()
			}
			if r.state() == siteOpen {
				l.open[at]++
			}
		}
	}
	return l
}

// takeFromPorts fills the ledger from the records of interfaces.
func (l *ledger) takeFromPorts(ports *meta) {
	for port := range uint16(maxPorts) {
		r := ports.port(port)
		for _, at := range []Hook{HookIngress, HookEgress} {
			switch site := l.site(hookKey{port, at}); {
			case !r.used() || r.mode(at) == "":
			case r.hasGap(at):
				site.set(0, siteOpen)
			default:
				site.setSince(0, r.ifindex())
				site.set(0, siteCovered)
			}
		}
	}
}

// siteRecord is a site in the mapped ledger.
type siteRecord []uint64

func (l *ledger) site(k hookKey) siteRecord {
	n := 2 * int(k.port)
	if k.hook == HookEgress {
		n++
	}
	return l.words[ledgerHeader+n*ledgerWords:][:ledgerWords]
}

func (r siteRecord) lost() Moment     { return Moment(r[0] >> 32) }
func (r siteRecord) state() siteState { return siteState(r[0]) }
func (r siteRecord) since() Moment    { return Moment(r[1] >> 32) }
func (r siteRecord) ifindex() int     { return int(uint32(r[1])) }

func (r siteRecord) set(lost Moment, s siteState) {
	atomic.StoreUint64(&r[0], uint64(lost)<<32|uint64(s))
}

func (r siteRecord) setSince(since Moment, ifindex int) {
	atomic.StoreUint64(&r[1], uint64(since)<<32|uint64(uint32(ifindex)))
}

func (l *ledger) now() Moment { return Moment(l.words[1]) }

// tick advances the clock, and returns the new time.
func (l *ledger) tick() Moment {
	l.ahead("tick")
	atomic.StoreUint64(&l.words[1], uint64(l.now()+1))
	return l.now()
}

// set changes the state of a site.
func (l *ledger) set(k hookKey, lost Moment, s siteState) {
	r := l.site(k)
	if r.state() == siteOpen {
		l.open[k.hook]--
	}
	if s == siteOpen {
		l.open[k.hook]++
	}
	if lost.After(l.lost[k.hook]) {
		l.lost[k.hook] = lost
	}
	l.ahead("state of a site")
	r.set(lost, s)
}

// setSince records since when a site is covered, and the index of its interface. The index is 0 once the interface has left.
func (l *ledger) setSince(k hookKey, since Moment, ifindex int) {
	l.ahead("since of a site")
	l.site(k).setSince(since, ifindex)
}

// begin begins an outage of a covered site. From now on, packets may pass uncounted, or may be counted twice.
func (l *ledger) begin(k hookKey) {
	if r := l.site(k); r.state() == siteCovered {
		l.set(k, r.lost(), siteOpen)
	}
}

// expect begins an outage of an unused site, because a running count begins to rely on it.
func (l *ledger) expect(k hookKey) {
	if r := l.site(k); r.state() == siteUnused {
		l.set(k, r.lost(), siteOpen)
	}
}

// revoke cancels an outage in which no packet was missed after all.
func (l *ledger) revoke(k hookKey) {
	if r := l.site(k); r.state() == siteOpen {
		l.set(k, r.lost(), siteCovered)
	}
}

// cover records that our program now counts on a site, and ends an outage.
//
// A renamed interface also had an outage. It has a new site under its new name. Counters of all interfaces counted its packets
// under the old name, but missed those since the renaming. cover recognizes a renamed interface by its index.
func (l *ledger) cover(k hookKey, ifindex int) {
	r := l.site(k)
	var renamed []hookKey // sites of this interface under earlier names, or k itself if the interface had left
	for port := range uint16(maxPorts) {
		of := hookKey{port, k.hook}
		if o := l.site(of); o.ifindex() == ifindex && (of != k || o.state() == siteUnused) {
			renamed = append(renamed, of)
		}
	}

	now, lost := l.tick(), r.lost()
	if r.state() == siteOpen || len(renamed) > 0 {
		lost = now
	}
	l.setSince(k, now, ifindex)
	l.set(k, lost, siteCovered)
	// Clear the old indexes after storing the loss. If the process dies in between, the next one finds them again.
	for _, of := range renamed {
		if of != k {
			l.setSince(of, l.site(of).since(), 0)
		}
	}
}

// release records that no counter relies on a site any more. Callers must release a site before they detach its program. If the
// process died in between the other way around, the next one would see an outage.
func (l *ledger) release(k hookKey) {
	r := l.site(k)
	if r.state() == siteUnused && r.ifindex() == 0 {
		return
	}
	l.set(k, r.lost(), siteUnused)
	l.setSince(k, r.since(), 0)
}

// leave records that an interface is no longer counted. Counters that relied on the site remain, and an outage ends here. If joins
// is set, the interface will be counted under a new name. Then leave keeps its index, by which cover recognizes it.
func (l *ledger) leave(k hookKey, joins bool) {
	r := l.site(k)
	switch r.state() {
	case siteOpen:
		l.set(k, l.tick(), siteUnused)
	case siteCovered:
		l.set(k, r.lost(), siteUnused)
	}
	if !joins && r.ifindex() != 0 {
		l.setSince(k, r.since(), 0)
	}
}

// adoptSites compares the ledger of an earlier process with the programs it left attached. Losing a program begins an outage.
func (dp *Datapath) adoptSites() {
	for port := range uint16(maxPorts) {
		for _, at := range []Hook{HookIngress, HookEgress} {
			k := hookKey{port, at}
			h := dp.hooks[k]
			counts := h != nil && h.alive()
			switch covered := dp.ledger.site(k).state() == siteCovered; {
			case counts && !covered: // the process died right after attaching
				dp.ledger.cover(k, h.ifindex)
			case covered && !counts:
				dp.ledger.begin(k)
			}
		}
	}
}

// lapse records that a hook has lost its program. An outage begins, unless the interface was deleted: then no packet passed after
// the program was gone.
func (dp *Datapath) lapse(h *hook) {
	if dp.ledger.site(h.hookKey).state() != siteCovered {
		return
	}
	ifi, _, err := dp.interfaceByName(h.name)
	if errors.Is(err, ErrNotFound) || err == nil && ifi.Index != h.ifindex {
		dp.ledger.leave(h.hookKey, false)
		return
	}
	dp.ledger.begin(h.hookKey)
}

// Expect records that a running count relies on an interface from now on. Until Attach succeeds there, its packets pass uncounted,
// which is an outage.
func (dp *Datapath) Expect(ifname string, at Hook) error {
	if err := dp.enter(); err != nil {
		return err
	}
	defer dp.mu.Unlock()
	port, err := dp.port(ifname)
	if err == nil {
		dp.ledger.expect(hookKey{port, at})
	}
	return err
}

// Now returns the time on the ledger's clock.
func (dp *Datapath) Now() Moment {
	if dp.enter() != nil {
		return 0
	}
	defer dp.mu.Unlock()
	return dp.ledger.now()
}

// Lost returns when the latest outage of an interface ended. A count that began after it has missed nothing. If ifname is "", Lost
// considers all interfaces that were ever counted. open is set during an outage.
func (dp *Datapath) Lost(ifname string, at Hook) (last Moment, open bool) {
	if dp.enter() != nil {
		return 0, false
	}
	defer dp.mu.Unlock()
	if ifname == "" {
		return dp.ledger.lost[at], dp.ledger.open[at] > 0
	}
	port, known := dp.meta.portOf(ifname)
	if !known {
		return 0, false
	}
	r := dp.ledger.site(hookKey{port, at})
	return r.lost(), r.state() == siteOpen
}

// CoveredSince returns since when our program counts the packets of an interface. ok is false if no program of ours counts them.
func (dp *Datapath) CoveredSince(ifname string, at Hook) (since Moment, ok bool) {
	if dp.enter() != nil {
		return 0, false
	}
	defer dp.mu.Unlock()
	port, known := dp.meta.portOf(ifname)
	if !known {
		return 0, false
	}
	r := dp.ledger.site(hookKey{port, at})
	return r.since(), r.state() == siteCovered
}
