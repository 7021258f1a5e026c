package xdp

import (
	"errors"
	"sync/atomic"

	"github.com/flowtally/flowtally/internal/kernel"
)

// The ledger knows when packets may have passed uncounted. It is a pinned map beside the meta map, which no program reads. In
// 64-bit words:
//
//	header  magic, clock
//	sites   2 words for each hook of each numbered interface: lost << 32 | state, since << 32 | index of the interface
//
// A site is one hook of one interface. It has one of three states:
//
//	unused   no counter relies on it
//	covered  a program of this datapath counts its packets
//	open     counters rely on it, and packets may pass uncounted: an outage
//
// The clock ticks when a site becomes covered, and when an outage ends without that. since is the tick at which the site became
// covered last. lost is the tick at which its last outage ended. A count that began before lost may lack packets.
//
// A change of state is one store, behind the stores that it depends on. If the process dies before that store, the site has
// its old state: the next process finds a covered site without a program, or a program on a site that is not covered, and
// goes on from there (adoptSites). A tick that was stored and not used means nothing.
const (
	ledgerMagic  = 0x72656764656c7466 // "ftledger"
	ledgerHeader = 2
	ledgerWords  = 2 // of a site
)

func ledgerBytes() int { return pages(8 * (ledgerHeader + 2*maxPorts*ledgerWords)) }

// Moment is a tick of the ledger's clock.
type Moment uint32

// After reports whether m is later than o. The clock wraps around.
func (m Moment) After(o Moment) bool { return int32(m-o) > 0 }

type siteState uint32

const (
	siteUnused siteState = iota
	siteCovered
	siteOpen
)

// ledger is the map, and what its records add up to. Datapath.mu guards it.
type ledger struct {
	words []uint64
	lost  map[Hook]Moment   // by kind of hook: the latest lost of all sites
	open  map[Hook]int      // by kind of hook: the number of open sites
	ahead func(what string) // Kernel.Store, called ahead of each store: a test ends the process there
}

// ledgerOf reads a ledger. An empty one is filled from the ports: an earlier version of flowtally, which had no ledger, has
// noted in them which sites it covered.
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

// takeFromPorts makes the records of sites from the records of interfaces.
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

// siteRecord is the two words of a site.
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

// tick moves the clock on, and returns the new time.
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

// setSince notes since when a program counts on a site of an interface, by its index. 0: the site has no interface any more.
func (l *ledger) setSince(k hookKey, since Moment, ifindex int) {
	l.ahead("since of a site")
	l.site(k).setSince(since, ifindex)
}

// begin begins an outage of a covered site: packets pass uncounted, or will, or may be counted twice.
func (l *ledger) begin(k hookKey) {
	if r := l.site(k); r.state() == siteCovered {
		l.set(k, r.lost(), siteOpen)
	}
}

// expect begins an outage of an unused site: a counter that has counted elsewhere relies on it from now on.
func (l *ledger) expect(k hookKey) {
	if r := l.site(k); r.state() == siteUnused {
		l.set(k, r.lost(), siteOpen)
	}
}

// revoke takes back an outage in which every packet was counted after all.
func (l *ledger) revoke(k hookKey) {
	if r := l.site(k); r.state() == siteOpen {
		l.set(k, r.lost(), siteCovered)
	}
}

// cover notes that a program counts on a site, and ends an outage.
//
// Under a new name an interface has another site, which is unused. But counters of all interfaces had its packets under the
// old name, and lack those that passed since. So an outage ends here too. The index of the interface tells that it was
// renamed.
func (l *ledger) cover(k hookKey, ifindex int) {
	r := l.site(k)
	var renamed []hookKey // sites of the interface under its other names, and this one if it has left and joins again
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
	for _, of := range renamed { // behind the store of the loss: a process that dies between finds the index again
		if of != k {
			l.setSince(of, l.site(of).since(), 0)
		}
	}
}

// release notes that no counter relies on a site any more. It comes before the detachment, which would be an outage otherwise.
func (l *ledger) release(k hookKey) {
	r := l.site(k)
	if r.state() == siteUnused && r.ifindex() == 0 {
		return
	}
	l.set(k, r.lost(), siteUnused)
	l.setSince(k, r.since(), 0)
}

// leave notes that the interface of a site is not among the counted ones any more. Counters that relied on the site stay, so an
// outage ends here. joins: the interface has another name now, under which it will be counted on; its index stays, for cover.
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

// adoptSites compares the ledger of an earlier process with the hooks that it has left. A covered site whose program is gone
// becomes open.
func (dp *Datapath) adoptSites() {
	for port := range uint16(maxPorts) {
		for _, at := range []Hook{HookIngress, HookEgress} {
			k := hookKey{port, at}
			h := dp.hooks[k]
			counts := h != nil && h.alive()
			switch covered := dp.ledger.site(k).state() == siteCovered; {
			case counts && !covered: // it was killed behind the attaching
				dp.ledger.cover(k, h.ifindex)
			case covered && !counts:
				dp.ledger.begin(k)
			}
		}
	}
}

// lapse notes that a hook has lost its program: an outage begins, unless the interface is gone. Then the program went with it,
// behind its last packet.
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

// Expect notes that a total, which has counted elsewhere, counts on an interface from now on. As long as no program is attached
// there, packets of that total pass uncounted.
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

// Lost returns when the latest outage of an interface ended. If ifname is "", it looks at all interfaces that ever were counted
// on. Counters that began later have missed nothing. open: an outage is under way, and its end will be later.
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

// CoveredSince returns since when a program counts the packets of an interface. ok is false if none counts them.
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
