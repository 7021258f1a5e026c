package model

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"testing/synctest"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/rdma"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab/memkernel"
)

// over is the truth about a flow of a host with devices. It holds for the packets since the last look at the total.
//
// Without a new discontinuity the total has exactly the packets that a device or a program has counted. With one it lacks
// no packet that is safe, and has none twice but those that were on their way between a device and XDP.
type over struct {
	total  uint64 // of the last look
	passed uint64 // that a device or a program has counted
	twice  uint64 // that two programs have counted
	safe   uint64 // of passed: read by a process, or in a pinned slot that the total goes on from
	fresh  uint64 // of passed: in a device, and perhaps not read yet
	unsure uint64 // that may be another flow's
	either uint64 // of unsure: this flow's or that of one other flow of the set, which has it in either then
	undone uint64 // that were counted while a change was in force which was refused then: with a discontinuity
	behind uint64 // that the last look lacked: the shadow may know them, and the total get them with a discontinuity
	unread bool   // one of its devices went before its first read, and its total has no value until that is noticed
}

// openDevices opens the real backend of RDMA over the rack.
func (w *world) openDevices(cfg dataplane.Config) (*rdma.Backend, error) {
	return rdma.New(context.Background(), rdma.Options{
		RDMA: cfg.RDMA, Interfaces: cfg.Interfaces, Period: cfg.Poll.Period, Logger: w.log, Host: w.rack,
	})
}

// device does something to a device.
func (w *world) device(verb, ifname string) {
	w.counts.devices++
	w.deviceAt = time.Now()
	w.rack.do(verb, ifname)
	for _, f := range w.flows {
		if f.Interface != "" && f.Interface != ifname {
			continue
		}
		for _, g := range w.entangled(f) {
			t := w.truthOf(g.Name)
			switch verb {
			case "lose", "vanish", "unread", "reset", "down": // a total goes on from the last value that was read
				t.over.fresh = 0
				t.possible = true
				t.over.unread = t.over.unread || time.Since(w.changed) < time.Second
			case "full", "read": // a flow may go to the device, and leave it before the first read succeeds
				t.possible = true
			}
		}
	}
}

// entangled are the flows that move with f between a device and XDP, for they overlap: f, the flows that overlap it, those
// that overlap these, and so on.
func (w *world) entangled(f flow.Flow) []flow.Flow { return entangled(w.flows, f) }

func entangled(all []flow.Flow, f flow.Flow) []flow.Flow {
	list := []flow.Flow{f}
	for i := 0; i < len(list); i++ {
		for _, g := range all {
			known := slices.ContainsFunc(list, func(o flow.Flow) bool { return o.Name == g.Name })
			if !known && flow.Overlap(&list[i], &g) {
				list = append(list, g)
			}
		}
	}
	return list
}

// noteMoves notes that a change from the set of now to list may move flows.
func (w *world) noteMoves(list []flow.Flow) {
	if w.rack == nil {
		return
	}
	all := slices.Concat(w.flows, list)
	same := func(a, b flow.Flow) bool {
		return a.Name == b.Name && a.Identity() == b.Identity() && a.Priority == b.Priority && a.Action == b.Action && a.Backend == b.Backend
	}
	lacks := func(set []flow.Flow, f flow.Flow) bool {
		return !slices.ContainsFunc(set, func(o flow.Flow) bool { return same(o, f) })
	}
	moved := !slices.EqualFunc(w.flows, list, same) && len(w.flows) == len(list)
	for _, f := range all {
		if !moved && !lacks(w.flows, f) && !lacks(list, f) {
			continue
		}
		for _, g := range entangled(all, f) {
			if w.truth[g.Name] != nil {
				w.truth[g.Name].possible = true
			}
		}
	}
}

// movesAtBirth reports whether a change to list may move a new flow after its total has begun: because others move, or because
// XDP counts a flow that is changed in its place until the change ends, though a hook may refuse, or because its device has just gone.
func (w *world) movesAtBirth(list []flow.Flow, f flow.Flow) bool {
	refuses := slices.ContainsFunc(w.sites(f), func(s site) bool { return w.refusing[s] })
	recent := time.Since(w.deviceAt) < 3*time.Second // the engine may not have seen it
	return w.rack != nil && (recent || refuses || len(entangled(slices.Concat(w.flows, list), f)) > 1)
}

// noteStarted notes the flows that a degraded start goes on without. Their entries keep their last values, and their slots
// are given to others.
func (w *world) noteStarted() error {
	if w.rack == nil {
		return nil
	}
	if err := w.askWithout(); err != nil {
		return err
	}
	for name := range w.without {
		t := w.truthOf(name)
		t.over.safe, t.over.fresh, t.possible = 0, 0, true
	}
	// A total goes from a slot to a device, and nobody has counted on some hook. Or a start that finds out which flows are
	// refused has moved the others.
	for _, f := range w.flows {
		if len(w.without) > 0 || slices.ContainsFunc(w.sites(f), func(s site) bool { return w.unheldAtStart[s] }) {
			w.truthOf(f.Name).possible = true
		}
	}
	return nil
}

// noteStart notes the hooks that do not count before a start.
func (w *world) noteStart() {
	w.unheldAtStart = make(map[site]bool)
	for _, name := range w.interfaces {
		for _, egress := range []bool{false, true} {
			w.unheldAtStart[site{name, egress}] = !w.holds(site{name, egress})
		}
	}
}

// atRest notes that everything that devices have counted was read.
func (w *world) atRest() {
	for _, t := range w.truth {
		t.over.safe += t.over.fresh
		t.over.fresh = 0
	}
}

// noteProcessEnds notes what the end of a process may cost: the counts of devices end with it.
func (w *world) noteProcessEnds() {
	if w.rack == nil {
		return
	}
	w.rack.killed()
	for name, t := range w.truth {
		t.over.fresh = 0
		if w.sources[name] != flow.XDP {
			t.possible = true
		}
	}
}

// winners are the flows that match a packet, first those that win.
func winners(set []flow.Flow, port uint16, ifname string, egress bool) (all []flow.Flow) {
	for _, f := range set {
		if matches(f, port, ifname, egress) {
			all = append(all, f)
		}
	}
	slices.SortStableFunc(all, func(a, b flow.Flow) int { return cmp.Compare(a.Priority, b.Priority) })
	return all
}

// sendOver is send on a host with devices.
func (w *world) sendOver(port uint16, ifname string, egress bool, n int) error {
	if err := w.noteWithout(); err != nil {
		return err
	}
	if w.rack.isDown(ifname) || !w.exists(ifname) {
		return nil
	}
	candidates := make(map[string]bool) // flows that the packet may count for
	name, identity := "", ""
	if all := winners(w.flows, port, ifname, egress); len(all) > 0 {
		name, identity = all[0].Name, all[0].Identity()
	}
	if w.uncertain {
		for _, set := range w.perhaps {
			all := winners(set, port, ifname, egress)
			if len(all) == 0 && name != "" {
				candidates[name] = true
			}
			for _, f := range all {
				if f.Name != name || f.Identity() != identity {
					candidates[name], candidates[f.Name] = true, true
				}
				if !w.without[f.Name] {
					break
				}
			}
		}
	}
	if w.without[name] {
		for _, f := range winners(w.flows, port, ifname, egress) {
			candidates[f.Name] = true
		}
	}
	delete(candidates, "")
	for range n {
		counted, seen, err := w.passOver(port, ifname, egress)
		if err != nil {
			return err
		}
		w.counts.packets++
		if w.without[name] && !w.uncertain && !counted && seen == 0 {
			if t := w.truthOf(name); t.known {
				t.missed, t.possible = t.missed+1, true
			}
			continue
		}
		if len(candidates) > 0 {
			for of := range candidates {
				if w.find(of) != nil {
					t := w.truthOf(of)
					t.possible = true
					t.over.unsure++
				}
			}
			continue
		}
		if name == "" {
			continue
		}
		w.countOver(w.truthOf(name), name, site{ifname, egress}, counted, seen)
	}
	return nil
}

// passOver passes one packet through device and programs, in the order of its direction.
func (w *world) passOver(port uint16, ifname string, egress bool) (counted bool, seen int, err error) {
	p := memkernel.Packet{Port: port, Bytes: 60}
	if egress {
		var dropped bool
		if seen, dropped, err = w.host.Pass(ifname, egress, p); err != nil || dropped {
			return false, seen, err
		}
		counted, _ = w.rack.pass(ifname, egress, port, p.Bytes)
		return counted, seen, nil
	}
	counted, taken := w.rack.pass(ifname, egress, port, p.Bytes)
	if !taken {
		seen, _, err = w.host.Pass(ifname, egress, p)
	}
	return counted, seen, err
}

// countOver notes a packet of a flow that a device has counted, or that programs have seen.
func (w *world) countOver(t *truth, name string, at site, counted bool, seen int) {
	source := w.sources[name]
	if counted {
		w.counts.counted++
	}
	if !counted && seen == 0 {
		t.possible = true
		w.counts.losses++
		if !t.refused[at] {
			t.missed++
		}
		return
	}
	t.over.passed++
	switch {
	case t.over.unread:
		t.possible = true
	case source == flow.RDMA && counted && !w.rack.cards[at.name].unreadable && !w.lacksDevice(name):
		t.over.fresh++
	case source == flow.XDP && seen > 0:
		t.over.safe++
		delete(t.refused, at)
	default: // something else counts it than the total has
		t.possible = true
	}
	if seen > 1 {
		t.over.twice += uint64(seen - 1)
		t.possible = true
	}
}

// lacksDevice reports whether a device of a flow has gone, perhaps unnoticed. The flow may leave its other devices then without
// their last values.
func (w *world) lacksDevice(name string) bool {
	f := w.find(name)
	return f != nil && slices.ContainsFunc(w.sites(*f), func(s site) bool {
		c := w.rack.cards[s.name]
		return c != nil && c.absent
	})
}

// checkOver compares a total with the truth.
func (w *world) checkOver(f flow.Flow, t *truth, packets, n uint64) error {
	o := &t.over
	least, most := o.total+o.safe+o.fresh, o.total+o.passed+o.twice+o.unsure
	all := most + o.behind
	w.trace("%s: %d packets, %d discontinuities; between %d and %d; %d counted, %d missed, %d unsure, by %s",
		f.Name, packets, n, least, most, o.passed, t.missed, o.unsure, w.sources[f.Name])
	if w.isOld(f) {
		w.forgetEither(f)
		return nil
	}
	if t.rebase {
		w.forgetEither(f)
		*t = truth{known: true, last: n, over: over{total: packets}}
		return nil
	}
	if n != t.last || o.unsure != o.either || o.twice > 0 || o.unread {
		w.forgetEither(f)
	}
	t.beyond = int64(packets - o.total - o.passed)
	if n == t.last && o.unsure == 0 {
		least, most = o.total+o.passed, o.total+o.passed
	}
	if n > t.last {
		most = all + o.undone
	}
	held := w.isCounted(f)
	if w.isTried(f) {
		t.possible = true
	}
	switch {
	case packets > most:
		return violated("%s: the total is %d, and at most %d packets were counted", f.Name, packets, most)
	case packets < least && n == t.last:
		return violated("%s: the total is %d, and %d packets were counted, and no discontinuity says so", f.Name, packets, least)
	case packets < least:
		return violated("%s: the total is %d, and %d packets were surely counted", f.Name, packets, least)
	case n < t.last:
		return violated("%s: the discontinuities fell from %d to %d", f.Name, t.last, n)
	case t.known && n > t.last && !t.possible:
		return violated("%s: a discontinuity without a possible loss", f.Name)
	case !t.known && n > 0 && !t.possible:
		return violated("%s: a new total begins with a discontinuity", f.Name)
	case n == t.last && t.missed > 0 && held:
		return violated("%s: %d packets are missing from the total, and no discontinuity says so", f.Name, t.missed)
	}
	if n > t.last || t.missed == 0 && held {
		t.missed, t.possible = 0, !held
	}
	t.known, t.last = true, n
	t.over = over{total: packets, behind: max(all, packets) - packets}
	return nil
}

// either are the two flows of which one has counted a packet that passed amid a step, and what was known of them then.
type either struct {
	names  [2]string
	truths [2]*truth
}

// forgetEither forgets the packets that a flow or another one has: a discontinuity says that either may lack them.
func (w *world) forgetEither(f flow.Flow) {
	w.eithers = slices.DeleteFunc(w.eithers, func(e either) bool {
		if !slices.Contains(e.names[:], f.Name) {
			return false
		}
		for _, name := range e.names {
			w.half[name] = true // what it has beyond its own packets may be of those
			if t := w.truth[name]; t != nil {
				t.over.either = 0
			}
		}
		return true
	})
}

// checkEithers finds packets that passed amid a step and that no total has, or two have. It compares the sum of the totals of the
// flows that share such packets.
func (w *world) checkEithers() error {
	group := make(map[string]string) // the first flow of a group, by flow
	var first func(name string) string
	first = func(name string) string {
		if group[name] == "" || group[name] == name {
			return name
		}
		return first(group[name])
	}
	for _, e := range w.eithers {
		group[first(e.names[0])] = first(e.names[1])
		group[first(e.names[1])] = first(e.names[1])
	}
	packets, beyond, unclear := make(map[string]int64), make(map[string]int64), make(map[string]bool)
	for _, e := range w.eithers {
		packets[first(e.names[0])]++
		for i, name := range e.names {
			if w.truth[name] != e.truths[i] { // it has become another flow
				unclear[first(name)] = true
			}
		}
	}
	for name := range group {
		if t := w.truth[name]; t == nil || w.half[name] || w.without[name] {
			unclear[first(name)] = true
		} else {
			beyond[first(name)] += t.beyond
		}
	}
	w.eithers, w.half = nil, make(map[string]bool)
	for name, n := range packets {
		if !unclear[name] && beyond[name] != n {
			return violated("%d packets passed amid a step, and the totals of %s and of the flows beside it have %d of them", n, name, beyond[name])
		}
	}
	return nil
}

// checkAudit finds differences between a device and XDP: both work as they should.
func (w *world) checkAudit() error {
	if !w.audit {
		return nil
	}
	list, err := w.engine.Conditions(context.Background())
	if err != nil {
		return err
	}
	for _, c := range list {
		if c.Code == dataplane.CodeRDMAAuditDiffers {
			return violated("%s: %s", c.Object, c.Text)
		}
	}
	return nil
}

// isTried reports whether a flow overlaps f that was refused since the last look. The engine tries it again after changes of
// links, devices and flows. Its rules may win packets of f until it is refused again, and f may move when it is not.
func (w *world) isTried(f flow.Flow) bool {
	return slices.ContainsFunc(w.entangled(f), func(g flow.Flow) bool { return w.tried[g.Name] })
}

// isOld reports whether a device counts the flow and cannot be read: the total grows old until the flow moves to XDP.
func (w *world) isOld(f flow.Flow) bool {
	w.rack.mu.Lock()
	defer w.rack.mu.Unlock()
	return w.sources[f.Name] == flow.RDMA && slices.ContainsFunc(w.sites(f), func(s site) bool {
		c := w.rack.cards[s.name]
		return c != nil && c.unreadable
	})
}

// isCounted reports whether what counts the flow is there on each of its interfaces.
func (w *world) isCounted(f flow.Flow) bool {
	w.rack.mu.Lock()
	defer w.rack.mu.Unlock()
	return !slices.ContainsFunc(w.sites(f), func(s site) bool {
		c := w.rack.cards[s.name]
		byDevice := w.sources[f.Name] == flow.RDMA && c != nil && c.open != nil && !c.down
		return !byDevice && !w.holds(s)
	})
}

// flightTime is how long a packet that passes amid a step is on its way between a device and XDP, on a host of which the
// history says "late".
const flightTime = 40 * time.Millisecond

// passAmid passes a packet amid a step.
func (w *world) passAmid(p *amidPacket) {
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	packet := memkernel.Packet{Port: p.port, Bytes: 60}
	switch {
	case !w.late:
		var err error
		p.counted, p.seen, err = w.passOver(p.port, p.at.name, p.at.egress)
		check(err)
	case p.at.egress:
		seen, dropped, err := w.host.Pass(p.at.name, true, packet)
		check(err)
		p.seen = seen
		if !dropped {
			time.AfterFunc(flightTime, func() { p.counted, _ = w.rack.pass(p.at.name, true, p.port, packet.Bytes) })
		}
	default:
		counted, taken := w.rack.pass(p.at.name, false, p.port, packet.Bytes)
		p.counted = counted
		if !taken {
			time.AfterFunc(flightTime, func() {
				seen, _, err := w.host.Pass(p.at.name, false, packet)
				check(err)
				p.seen = seen
			})
		}
	}
}

// amidPacket is a packet that has passed amid a step.
type amidPacket struct {
	port    uint16
	at      site
	winner  flow.Flow // in the set of before
	may     []string  // the flows that may count it there
	counted bool
	seen    int
}

// passAt has packets pass at the step n of the process.
func (w *world) passAt(n int, s step) {
	w.undone = nil
	port, count := parseNumber(s.args[0]), parseNumber(s.args[2])
	at := site{s.args[1], s.egress}
	w.setAtStep(func(string) {
		if n--; n != 0 || w.kill.killed || w.rack.isDown(at.name) || !w.exists(at.name) {
			return
		}
		for range count {
			w.counts.packets++
			w.counts.amid++
			p := &amidPacket{port: uint16(port), at: at}
			if all := winners(w.flows, p.port, at.name, at.egress); len(all) > 0 {
				p.winner = all[0]
			}
			p.may = w.mayCount(*p)
			w.amid = append(w.amid, p)
			w.passAmid(p)
		}
	})
}

func parseNumber(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

// mayCount returns the flows that may count a packet by the set as it is: its winner, or behind a refused one the next.
func (w *world) mayCount(p amidPacket) (names []string) {
	for _, f := range winners(w.flows, p.port, p.at.name, p.at.egress) {
		names = append(names, f.Name)
		if !w.uncertain && !w.without[f.Name] {
			break
		}
	}
	return names
}

// resolveAmid notes what the packets that passed amid a step may count for: the flow that wins in the set of before, and in
// the set of after. If that is the same flow, its total has each packet once, or declares that it may not.
func (w *world) resolveAmid() {
	w.setAtStep(nil)
	if w.late && len(w.amid) > 0 {
		time.Sleep(flightTime)
		synctest.Wait()
	}
	list, undone := w.amid, w.undone
	w.amid, w.undone = nil, nil
	for _, p := range list {
		if undone != nil {
			for _, f := range winners(slices.Concat(w.flows, undone), p.port, p.at.name, p.at.egress) {
				if w.find(f.Name) != nil {
					w.truthOf(f.Name).over.undone++
				}
			}
		}
		var after flow.Flow
		if all := winners(w.flows, p.port, p.at.name, p.at.egress); len(all) > 0 {
			after = all[0]
		}
		if after.Name == p.winner.Name && after.Identity() == p.winner.Identity() && !w.uncertain && !w.without[after.Name] {
			if after.Name != "" {
				t := w.truthOf(after.Name)
				t.possible = true
				if t.refused[p.at] && p.seen == 0 { // a device has counted it for an Install that was refused, or for good
					t.over.unsure++
					continue
				}
				w.sources[after.Name] = ""             // it may move amid the step
				if w.late && p.counted && p.seen > 0 { // and take the total that has the packet to a slot that gets it later
					t.over.twice++
				}
				w.countOver(t, after.Name, p.at, p.counted, p.seen)
			}
			continue
		}
		may := slices.Compact(slices.Sorted(slices.Values(append(p.may, w.mayCount(*p)...))))
		if counted := p.counted || p.seen > 0; counted && w.isEither(*p, after, may) {
			names := [2]string{p.winner.Name, after.Name}
			w.eithers = append(w.eithers, either{names, [2]*truth{w.truthOf(names[0]), w.truthOf(names[1])}})
			for _, name := range may {
				w.truthOf(name).over.either++
			}
		}
		for _, name := range may {
			if w.find(name) != nil {
				t := w.truthOf(name)
				t.possible = true
				t.over.unsure++
			}
		}
	}
}

// isEither reports whether a packet counts for its winner of before or for that of after, and the set has both now.
func (w *world) isEither(p amidPacket, after flow.Flow, may []string) bool {
	stays := w.find(p.winner.Name)
	return stays != nil && stays.Identity() == p.winner.Identity() && w.find(after.Name) != nil && len(may) == 2 &&
		!w.uncertain && !slices.ContainsFunc(may, func(name string) bool { return w.without[name] || w.truthOf(name).rebase })
}

// noteSources notes what counts each flow.
func (w *world) noteSources(placed []dataplane.Placement) {
	if w.tried == nil {
		w.tried = make(map[string]bool)
	}
	maps.Copy(w.tried, w.without)
	w.sources = make(map[string]flow.Backend)
	for _, p := range placed {
		w.sources[p.Flow.Name] = p.Source.Backend
	}
}
