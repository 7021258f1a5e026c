package model

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/inject"
	"github.com/flowtally/flowtally/internal/lab/memkernel"
	"github.com/flowtally/flowtally/internal/tick"
	"github.com/flowtally/flowtally/shm"
)

// world is a host, the instance that runs on it or has run, and the truth about both.
type world struct {
	host    *memkernel.Host
	dir     string // of the incarnations
	boots   int    // incarnations
	room    int    // xdp.max_flows
	slow    bool   // the process polls, and looks after its hooks, every 250 ms
	process *memkernel.Process
	engine  *engine.Engine // nil: no process runs
	log     *slog.Logger
	trace   func(format string, args ...any)

	interfaces  []string         // of the running process, or of the next start
	running     dataplane.Config // of the running process
	refusing    map[site]bool
	unlooked    map[site]bool   // sites whose programs were taken off since the engine last looked
	deleted     []string        // interfaces that went since the engine last looked
	relied      map[site]bool   // sites that have counted for the flows of the set
	fresh       map[string]bool // interfaces that came, and that no program has counted on since
	keep        bool            // xdp.keep_pins of the next start
	kept        bool            // xdp.keep_pins of the running process
	pinned      bool            // the last process left its pins
	dropping    bool            // the process is ending, and leaves no pins
	strict      bool            // the next start is not degraded
	flows       []flow.Flow     // of the set in force, in their order
	wanted      []flow.Flow     // of the next start
	perhaps     [][]flow.Flow   // if uncertain: other sets that may be in force in place of flows
	halfStarted bool            // the last start was killed
	amidStep    bool            // packets pass amid a step of the process
	uncertain   bool            // the process was killed while it changed the set
	changed     time.Time       // when the set last changed, or a change was tried
	loose       bool            // a hook was lost since the last check: a new flow may begin with a discontinuity
	truth       map[string]*truth
	without     map[string]bool // flows without a source, as of the last askWithout

	rack    *rack                   // nil: the host has no device
	audit   bool                    // rdma.audit
	late    bool                    // packets amid a step are on their way between a device and XDP for flightTime
	sources map[string]flow.Backend // what counts each flow, as of the last askWithout

	unheldAtStart map[site]bool   // hooks without a program when the process began
	deviceAt      time.Time       // when a device last had a step
	amid          []*amidPacket   // of the step that is under way
	eithers       []either        // packets that passed amid steps since the last check
	half          map[string]bool // flows that may have some packets of eithers which were forgotten
	undone        []flow.Flow     // the set that the step has refused
	tried         map[string]bool // flows that were refused since the last check

	kill struct {
		mu     sync.Mutex
		after  int // steps of the process until it is killed; 0: it is not to be killed
		killed bool
		only   string            // only steps of this text count; "": all do
		then   func()            // called at the kill, unless nil
		atStep func(what string) // called at each step with mu held, unless nil
	}
	counts counts
	began  int // counts.starts before the first one
}

// counts are what happened in the histories of a run.
type counts struct {
	histories, packets, starts, calls, refused, losses, kills, cancels, passes, checks, without int

	devices int // steps of devices
	counted int // packets that devices have counted
	amid    int // packets that passed amid a step
}

// truth is what is known about the packets of one flow since its total began.
type truth struct {
	seen   uint64 // counted by programs, once for each program
	missed uint64 // that passed no program, since the last discontinuity
	twice  uint64 // that two programs have counted, since the last discontinuity
	last   uint64 // the discontinuities at the last check
	rebase bool   // nothing tells whether the total goes on: the next check believes the mirror
	known  bool   // last has a value
	// unsure are packets between a kill within a change and the next start. The set of before gives them to this flow
	// (mine) and another possible set to another flow, or the other way round. The total has them as the set of before
	// gives them, or a discontinuity says that it may not. So are packets that pass while a process ends without pins.
	unsure uint64
	// A start that was killed, or a retry under way, may have given the flow a slot. The slot has the packets then, without a
	// discontinuity.
	mayHaveSlot bool
	mine        uint64
	// refused are hooks that did not take a program when the total began: a condition says so, and nobody has promised to
	// count there until the hook is held.
	refused  map[site]bool
	beyond   int64 // packets of the total beyond those that are surely the flow's, at the last check
	possible bool  // a packet may have been lost or counted twice since the last check
	over     over
}

// site is one direction of one interface.
type site struct {
	name   string
	egress bool
}

// violation is an invariant that does not hold.
type violation struct{ text string }

func (v violation) Error() string { return v.text }

func violated(format string, args ...any) error { return violation{fmt.Sprintf(format, args...)} }

func newWorld(host *memkernel.Host, dir string, trace func(string, ...any)) *world {
	w := &world{
		host: host, dir: dir, trace: trace, keep: true, room: 8,
		truth: make(map[string]*truth), half: make(map[string]bool), fresh: make(map[string]bool), refusing: make(map[site]bool), interfaces: []string{"v0", "v1"},
	}
	w.host.Add("v0", "")
	w.host.Add("v1", "veth")
	w.log = slog.New(slog.DiscardHandler)
	if isVerbose() {
		w.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return w
}

func (w *world) home(n int) string { return filepath.Join(w.dir, fmt.Sprint(n)) }

func (w *world) config() dataplane.Config {
	home := w.home(w.boots)
	period := 97 * time.Millisecond // out of phase with the looks of each second
	if w.slow {
		period = 250 * time.Millisecond
	}
	cfg := dataplane.Config{
		Instance: "model", Backend: flow.XDP, Flows: slices.Clone(w.wanted), Start: dataplane.StartDegraded,
		Mirror: dataplane.MirrorConfig{Path: filepath.Join(home, "mirror"), Counters: max(64, 2*w.room), History: -1},
		XDP:    dataplane.XDPConfig{PinDir: filepath.Join(home, "pins"), MaxFlows: w.room, KeepPins: w.keep},
		Poll:   dataplane.PollConfig{Period: period, IdlePeriod: period},
	}
	if w.strict {
		cfg.Start = ""
	}
	for _, name := range w.interfaces {
		cfg.Interfaces = append(cfg.Interfaces, dataplane.Interface{Name: name})
	}
	if w.rack != nil {
		cfg.Backend = flow.Auto
		cfg.RDMA.Audit = w.audit
		cfg.RDMA.ByteBasis = dataplane.BasisL2 // the devices of the model count as XDP does
	}
	return cfg
}

// start starts the instance with the wanted flows.
func (w *world) start() error {
	if w.engine != nil {
		return nil
	}
	if err := os.MkdirAll(w.home(w.boots), 0o700); err != nil {
		return err
	}
	w.counts.starts++
	w.noteStart()
	w.kept = w.keep

	cfg := w.config()
	w.running = cfg
	w.process = w.host.Boot(w.step)
	b, err := xdp.New(xdp.Options{
		Interfaces: cfg.Interfaces, Degraded: !w.strict, Config: cfg.XDP, Flows: cfg.Flows, Logger: w.log, Kernel: w.process,
	})
	if err != nil {
		return fmt.Errorf("opening the backend: %w", err)
	}

	s := &stepped{Backend: b, step: w.step, slow: w.slow}
	s.SetIdle(false)
	backends := []backend.Backend{s}
	if w.rack != nil {
		d, err := w.openDevices(cfg)
		if err != nil {
			return errors.Join(fmt.Errorf("opening the devices: %w", err), b.Close(w.keep))
		}
		defer func() {
			if w.engine == nil {
				_ = d.Close(false)
			}
		}()
		backends = slices.Insert(backends, 0, backend.Backend(d))
	}

	ctx := inject.Ticker(inject.Backends(context.Background(), backends...), tick.NewRuntime())
	ctx = inject.Reserve(ctx, leaveHole)
	e, err := engine.New(ctx, cfg, engine.Options{Logger: w.log})
	if err != nil {
		_ = b.Close(w.keep) // idempotent: most failures have closed it
		return err
	}
	w.engine = e
	if w.kill.killed { // within settles what is in force
		return nil
	}
	w.adopt(w.wanted)
	return w.noteStarted()
}

// leaveHole makes a mirror longer without reserving its space: no history fills the disk, and to reserve and free a segment
// takes a third of the time of a history.
func leaveHole(f *os.File, off, n int64) error { return f.Truncate(off + n) }

// step is called before each step of the process: most write to what is durable.
func (w *world) step(what string) {
	w.kill.mu.Lock()
	defer w.kill.mu.Unlock()
	if w.kill.atStep != nil {
		w.kill.atStep(what)
	}
	if w.kill.killed || w.kill.after == 0 || w.kill.only != "" && w.kill.only != what {
		return
	}
	if w.kill.after--; w.kill.after == 0 {
		w.trace("killed at %q", what)
		w.kill.killed = true
		w.counts.kills++
		if err := w.fork(); err != nil {
			panic(err)
		}
		if w.kill.then != nil {
			w.kill.then()
		}
	}
}

// fork copies what is durable for the next incarnation.
func (w *world) fork() error {
	from, to := w.home(w.boots), w.home(w.boots+1)
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	err := copyStill(filepath.Join(from, "mirror"), filepath.Join(to, "mirror"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if w.rack != nil {
		w.rack.killed()
	}
	return w.process.Kill(filepath.Join(from, "pins"), filepath.Join(to, "pins"))
}

// copyStill copies a file once two reads of it agree: a kill stops the process between two stores, but here the poller goes
// on. Pages that were never written are left out.
func copyStill(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	last, err := readExtents(f)
	for err == nil {
		var now []extent
		if now, err = readExtents(f); slices.EqualFunc(now, last, extent.equal) {
			break
		}
		last = now
	}
	if err != nil {
		return err
	}

	st, err := f.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	if err := out.Truncate(st.Size()); err != nil {
		return err
	}
	for _, e := range last {
		if _, err := out.WriteAt(e.data, e.at); err != nil {
			return err
		}
	}
	return out.Chmod(0o644)
}

// extent is a part of a file that was written.
type extent struct {
	at   int64
	data []byte
}

func (e extent) equal(o extent) bool { return e.at == o.at && bytes.Equal(e.data, o.data) }

func readExtents(f *os.File) (list []extent, err error) {
	for at := int64(0); ; {
		if at, err = unix.Seek(int(f.Fd()), at, unix.SEEK_DATA); err != nil {
			return list, ignoreHole(err)
		}
		end, err := unix.Seek(int(f.Fd()), at, unix.SEEK_HOLE)
		if err != nil {
			return list, ignoreHole(err)
		}
		e := extent{at: at, data: make([]byte, end-at)}
		n, err := f.ReadAt(e.data, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		e.data = e.data[:n]
		list, at = append(list, e), end
	}
}

// ignoreHole ignores the error that says that the rest of a file is a hole, or that it was cut short meanwhile.
func ignoreHole(err error) error {
	if errors.Is(err, unix.ENXIO) {
		return nil
	}
	return err
}

// mirror is the path of the mirror.
func (w *world) mirror() string { return filepath.Join(w.home(w.boots), "mirror") }

// bury ends the goroutines of a killed process, whose writes reach nothing any more.
func (w *world) bury() {
	if w.engine != nil {
		_ = w.engine.Close()
	}
	w.engine = nil
	w.boots++
	w.pinned = true
	w.kill.killed = false
	w.noteUnseen()
	w.noteProcessEnds()
}

// killNow kills the process between two calls.
func (w *world) killNow() error {
	if w.engine == nil {
		return nil
	}
	if time.Since(w.changed) <= time.Second {
		w.allPossible() // the next process does not know whether the change came to its end
	}
	if err := w.askWithout(); err != nil {
		return err
	}
	w.kill.mu.Lock()
	w.kill.killed, w.kill.after = true, 0
	w.counts.kills++
	err := w.fork()
	w.kill.mu.Unlock()
	w.bury()
	return err
}

// cancelledAt returns a context that ends at step n of the process; 0: it does not end. The caller calls done.
func (w *world) cancelledAt(n int) (ctx context.Context, done func()) {
	ctx, cancel := context.WithCancel(context.Background())
	if n == 0 {
		return ctx, cancel
	}
	w.kill.mu.Lock()
	amid := w.kill.atStep
	w.kill.mu.Unlock()
	w.setAtStep(func(what string) {
		if n--; n == 0 {
			w.counts.cancels++
			cancel()
		}
		if amid != nil {
			amid(what)
		}
	})
	return ctx, func() {
		w.setAtStep(amid)
		cancel()
	}
}

// setAtStep makes each step of the process call f. It takes the lock, because goroutines of the engine may be in a step.
func (w *world) setAtStep(f func(what string)) {
	w.kill.mu.Lock()
	defer w.kill.mu.Unlock()
	w.kill.atStep = f
}

// within runs fn, and kills the process at its step n; 0: it does not. changes says that fn changes the set of flows.
func (w *world) within(n int, changes bool, fn func() error) (killed bool, err error) {
	w.kill.mu.Lock()
	w.kill.after = n
	w.kill.mu.Unlock()

	err = fn()

	w.kill.mu.Lock()
	killed = w.kill.killed
	w.kill.after = 0
	w.kill.mu.Unlock()
	if !killed {
		return false, err
	}

	w.bury()
	w.allPossible()
	w.uncertain = w.uncertain || changes
	return true, nil
}

// allPossible notes that each flow may lack packets.
func (w *world) allPossible() {
	for _, t := range w.truth {
		t.possible = true
	}
}

// settle lets time pass, and waits until the instance has done what it does in it.
func (w *world) settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
	if w.engine != nil && !w.kill.killed {
		w.deleted = nil
	}
	if d >= time.Second { // the engine looks more often
		w.unlooked = nil
		if w.engine != nil && !w.kill.killed {
			w.atRest()
		}
	}
}

// noteDeleted notes that an interface goes. If its hook was lost, and no look has seen that, the engine takes the hook for
// held until then: docs/reliability.md.
func (w *world) noteDeleted(name string) {
	w.deleted = append(w.deleted, name)
	for s := range w.unlooked {
		if s.name != name {
			continue
		}
		for _, f := range w.flows {
			if slices.Contains(w.sites(f), s) {
				t := w.truthOf(f.Name)
				t.missed, t.possible = 0, true
			}
		}
	}
}

// noteUnseen notes that no process saw the deleted interfaces go: nobody knows whether their hooks were held until then.
func (w *world) noteUnseen() {
	for _, name := range w.deleted {
		w.unheld(name, false)
		w.unheld(name, true)
	}
	w.deleted = nil
}

// stop ends the instance as SIGTERM does.
func (w *world) stop() error {
	if w.engine == nil {
		return nil
	}
	if err := w.noteWithout(); err != nil { // packets that pass until the next start count for the flows of now
		return err
	}
	w.dropping = !w.kept
	err := w.engine.Close()
	w.dropping = false
	w.engine = nil
	w.noteUnseen()
	w.noteProcessEnds()
	w.pinned = w.kept
	if !w.kept {
		w.allPossible()
	}
	return err
}

// end ends the instance at the end of a history.
func (w *world) end() {
	w.keep = true
	_ = w.stop()
}

func (w *world) truthOf(name string) *truth {
	if w.truth[name] == nil {
		w.truth[name] = &truth{}
	}
	return w.truth[name]
}

// send passes packets on one side of an interface.
func (w *world) send(port uint16, ifname string, egress bool, n int) error {
	if w.rack != nil {
		return w.sendOver(port, ifname, egress, n)
	}
	if err := w.noteWithout(); err != nil {
		return err
	}
	return w.pass(port, ifname, egress, n)
}

// passingAt lets packets pass at step n of the process, unless the set of flows may change; 0: at no step. The caller calls done.
func (w *world) passingAt(n int) (done func()) {
	same := slices.EqualFunc(w.wanted, w.flows, func(a, b flow.Flow) bool {
		return a.Name == b.Name && a.Identity() == b.Identity() && a.Action == b.Action
	})
	if n == 0 || !same || w.uncertain {
		return func() {}
	}
	w.setAtStep(func(what string) {
		if n--; n != 0 || w.kill.killed {
			return
		}
		w.trace("packets pass at %q", what)
		w.counts.passes++
		w.amidStep = true
		defer func() { w.amidStep = false }()
		for _, name := range w.interfaces {
			for _, egress := range []bool{false, true} {
				if err := w.pass(1, name, egress, 1); err != nil {
					panic(err)
				}
			}
		}
	})
	return func() { w.setAtStep(nil) }
}

// detachingAt takes the program off v0 at step n of the process; 0: at no step. The caller calls done.
func (w *world) detachingAt(n int) (done func()) {
	if n == 0 {
		return func() {}
	}
	w.setAtStep(func(what string) {
		if n--; n == 0 && !w.kill.killed {
			w.trace("v0 loses its program at %q", what)
			w.detach("v0", false)
		}
	})
	return func() { w.setAtStep(nil) }
}

// detach takes our program off a hook.
func (w *world) detach(ifname string, egress bool) {
	for _, at := range hooksOf(egress) {
		if !w.host.Detach(ifname, at) {
			continue
		}
		w.unheld(ifname, egress)
		if w.unlooked == nil {
			w.unlooked = make(map[site]bool)
		}
		w.unlooked[site{ifname, egress}] = true
	}
}

// pass passes packets at this instant.
func (w *world) pass(port uint16, ifname string, egress bool, n int) error {
	winner := func(set []flow.Flow) (name, identity string) {
		i := slices.IndexFunc(set, func(f flow.Flow) bool { return matches(f, port, ifname, egress) && !w.without[f.Name] })
		if i < 0 {
			return "", ""
		}
		return set[i].Name, set[i].Identity()
	}
	name, identity := winner(w.flows)
	if w.uncertain {
		for _, set := range w.perhaps {
			if other, its := winner(set); other != name || its != identity {
				return w.sendUnsure(name, other, ifname, egress, memkernel.Packet{Port: port, Bytes: 60}, n)
			}
		}
	}
	// A flow that is not counted lacks what it would have won, if its total has begun.
	first := slices.IndexFunc(w.flows, func(f flow.Flow) bool { return matches(f, port, ifname, egress) })
	if first >= 0 && w.without[w.flows[first].Name] {
		if w.halfStarted || w.amidStep { // it may have found a slot
			w.truthOf(w.flows[first].Name).mayHaveSlot = true
			return w.sendUnsure(name, w.flows[first].Name, ifname, egress, memkernel.Packet{Port: port, Bytes: 60}, n)
		}
		if t := w.truthOf(w.flows[first].Name); t.known {
			t.missed += uint64(n)
			t.possible = true
		}
	}
	for range n {
		seen, _, err := w.host.Pass(ifname, egress, memkernel.Packet{Port: port, Bytes: 60})
		if err != nil {
			return err
		}
		w.counts.packets++
		if name == "" || !w.exists(ifname) || !slices.Contains(w.interfaces, ifname) {
			continue
		}
		t := w.truthOf(name)
		if w.dropping { // the total has them if a cycle still publishes them; otherwise it has a discontinuity
			t.unsure += uint64(seen)
			t.mine += uint64(seen)
		} else {
			t.seen += uint64(seen)
		}
		if seen > 0 {
			delete(t.refused, site{ifname, egress})
		}
		if seen == 0 {
			t.possible = true
			w.counts.losses++
			if !w.fresh[ifname] && !t.refused[site{ifname, egress}] {
				t.missed++
			}
		}
		if seen > 1 {
			t.possible = true
			t.twice++
		}
	}
	return nil
}

// noteWithout lets the instance come to rest, and notes which flows are not counted.
func (w *world) noteWithout() error {
	if w.engine == nil {
		return nil
	}
	synctest.Wait()
	return w.askWithout()
}

// askWithout asks the instance at this instant which flows are not counted.
func (w *world) askWithout() error {
	placed, err := w.engine.Placements(context.Background())
	if err != nil {
		return err
	}
	w.without = make(map[string]bool)
	for _, p := range placed {
		if p.Source.Backend == "" {
			w.without[p.Flow.Name] = true
		}
	}
	w.noteSources(placed)
	return nil
}

// sendUnsure passes packets after a kill within a change. They count for the flow before if the change did not come to its end,
// and for the flow perhaps if it did. Either may be "", for none.
func (w *world) sendUnsure(before, perhaps, ifname string, egress bool, p memkernel.Packet, n int) error {
	for range n {
		if _, _, err := w.host.Pass(ifname, egress, p); err != nil {
			return err
		}
		w.counts.packets++
	}
	for _, name := range []string{before, perhaps} {
		if w.find(name) == nil {
			continue
		}
		t := w.truthOf(name)
		t.possible = true
		t.unsure += uint64(n)
		if name == before {
			t.mine += uint64(n)
		}
	}
	return nil
}

// exists reports whether there is an interface of a name.
func (w *world) exists(name string) bool {
	_, ok := w.host.Boot(nil).Interface(name)
	return ok
}

// matches reports whether a flow matches a packet.
func matches(f flow.Flow, port uint16, ifname string, egress bool) bool {
	if f.Interface != "" && f.Interface != ifname || (f.Direction == flow.Egress) != egress {
		return false
	}
	return matchesPort(f.Match, port)
}

// matchesPort reports whether a match of UDP matches a packet to a port.
func matchesPort(m flow.Match, port uint16) bool {
	dst := m.UDP.Dst
	return (port^dst.Value)&dst.Mask == 0
}

// unheld notes that packets may pass a hook unseen.
func (w *world) unheld(ifname string, egress bool) {
	w.loose = true
	for _, f := range w.flows {
		if (f.Interface == "" || f.Interface == ifname) && (f.Direction == flow.Egress) == egress {
			w.truthOf(f.Name).possible = true
		}
	}
}

// set makes list the set of flows, by SetFlows. renames has new names by old ones.
func (w *world) set(ctx context.Context, list []flow.Flow, renames map[string]string) error {
	if w.engine == nil {
		w.wanted = list
		return nil
	}
	w.may(list)
	w.counts.calls++
	d, err := w.engine.SetFlows(ctx, list, dataplane.SetOptions{Renames: renames})
	if unfinished := (*dataplane.UnfinishedError)(nil); errors.As(err, &unfinished) {
		err = <-unfinished.Outcome
	}
	if err != nil || w.kill.killed {
		return err
	}
	w.change(list, d)
	return nil
}

// plus adds flows to the set, by AddFlows. It leaves out a flow that counts the same packets as another: a start that has a
// third name for these packets could go on with either total.
func (w *world) plus(ctx context.Context, more []flow.Flow) error {
	more = slices.DeleteFunc(more, func(f flow.Flow) bool {
		same := func(o flow.Flow) bool { return o.Name == f.Name || o.Identity() == f.Identity() }
		return slices.ContainsFunc(w.flows, same)
	})
	list := append(slices.Clone(w.flows), more...)
	if w.engine == nil || len(more) == 0 {
		return nil
	}
	w.may(list)
	w.counts.calls++
	_, err := w.engine.AddFlows(ctx, more...)
	if err != nil || w.kill.killed {
		return err
	}
	w.change(list, dataplane.Difference{Added: names(more)})
	return nil
}

// minus removes flows from the set, by RemoveFlows. No caller cancels that.
func (w *world) minus(gone []string) error {
	gone = slices.DeleteFunc(gone, func(name string) bool { return w.find(name) == nil })
	list := slices.DeleteFunc(slices.Clone(w.flows), func(f flow.Flow) bool { return slices.Contains(gone, f.Name) })
	if w.engine == nil || len(gone) == 0 {
		return nil
	}
	w.may(list)
	w.counts.calls++
	if err := w.engine.RemoveFlows(context.Background(), gone...); err != nil || w.kill.killed {
		return err
	}
	w.change(list, dataplane.Difference{Removed: gone})
	return nil
}

// rename gives a flow another name, by SetFlows.
func (w *world) rename(ctx context.Context, from, to string) error {
	if w.engine == nil || w.find(from) == nil || w.find(to) != nil {
		return nil
	}
	list := slices.Clone(w.flows)
	for i := range list {
		if list[i].Name == from {
			list[i].Name = to
		}
	}
	return w.set(ctx, list, map[string]string{from: to})
}

// only makes the running instance count on these interfaces alone, by SetFlows. Packets that pass an interface from when it
// leaves until it has a program again are nobody's.
func (w *world) only(ctx context.Context, list []string) error {
	if w.engine == nil || slices.Equal(list, w.interfaces) {
		return nil
	}
	cfg := w.running
	cfg.Flows, cfg.Interfaces = nil, nil
	for _, name := range list {
		cfg.Interfaces = append(cfg.Interfaces, dataplane.Interface{Name: name})
	}
	var moves []string // interfaces that come or go
	for _, name := range slices.Concat(w.interfaces, list) {
		if slices.Contains(w.interfaces, name) != slices.Contains(list, name) {
			moves = append(moves, name)
			for _, egress := range []bool{false, true} {
				if !w.holds(site{name, egress}) {
					w.unheld(name, egress)
				}
			}
		}
	}

	w.may(w.flows)
	w.counts.calls++
	_, err := w.engine.SetFlows(ctx, w.flows, dataplane.SetOptions{Config: &cfg})
	if unfinished := (*dataplane.UnfinishedError)(nil); errors.As(err, &unfinished) {
		err = <-unfinished.Outcome
	}
	if err == nil || w.kill.killed {
		for _, name := range moves {
			w.fresh[name] = true
		}
	}
	if err != nil || w.kill.killed {
		return err
	}
	w.running, w.interfaces = cfg, list
	return nil
}

func (w *world) find(name string) *flow.Flow {
	for i := range w.flows {
		if w.flows[i].Name == name {
			return &w.flows[i]
		}
	}
	return nil
}

func names(flows []flow.Flow) (out []string) {
	for _, f := range flows {
		out = append(out, f.Name)
	}
	return out
}

// change notes that list is in force. d is what changed.
func (w *world) change(list []flow.Flow, d dataplane.Difference) {
	was := make(map[string]string)
	for _, r := range d.Renamed {
		was[r.To] = r.From
	}
	anew := make(map[string]bool)
	for _, c := range d.Changed {
		anew[c.Name] = c.Anew
	}
	for _, name := range d.Added {
		anew[name] = true
	}
	next := make(map[string]*truth)
	for _, f := range list {
		from := f.Name
		if was[f.Name] != "" {
			from = was[f.Name]
		}
		if next[f.Name] = w.truth[from]; anew[f.Name] || next[f.Name] == nil {
			next[f.Name] = &truth{possible: w.loose || w.movesAtBirth(list, f), rebase: w.rack != nil && w.without[f.Name]}
		}
	}
	w.flows, w.wanted, w.truth = list, list, next
	w.changed = time.Now()
	w.noteRefused()
}

// noteUndone notes that flows of list may have counted packets of others, or other packets than theirs, until their call
// was refused. whole: list was to be the whole set.
func (w *world) noteUndone(list []flow.Flow, whole bool) {
	w.undone = list
	for _, f := range w.flows {
		if whole && !slices.ContainsFunc(list, func(g flow.Flow) bool { return g.Name == f.Name }) {
			w.truthOf(f.Name).possible = true // its rules had gone
		}
		misses := func(g flow.Flow) bool {
			if g.Name == f.Name {
				return g.Identity() != f.Identity()
			}
			return flow.Overlap(&f, &g)
		}
		if slices.ContainsFunc(list, misses) {
			w.truthOf(f.Name).possible = true
		}
	}
}

// may notes that list may be in force if the process is killed from now on.
func (w *world) may(list []flow.Flow) {
	w.noteMoves(list)
	if !w.uncertain {
		w.perhaps = nil
	}
	w.perhaps = append(w.perhaps, list)
	w.changed = time.Now() // also if the change is refused
}

// adopt notes that a start has list in force. The total of a flow goes on if the flow has its name and its packets of before. It
// also goes on under another name, if its slot is pinned: the mirror alone does not tell that a flow was renamed.
func (w *world) adopt(list []flow.Flow) {
	next := make(map[string]*truth)
	configured := make(map[string]bool)
	for _, f := range list {
		configured[f.Name+" "+f.Identity()] = true
	}
	for _, f := range list {
		t := &truth{possible: w.loose}
		for _, old := range w.flows {
			renamed := w.pinned && !configured[old.Name+" "+old.Identity()]
			if old.Identity() == f.Identity() && (old.Name == f.Name || renamed) {
				if t = w.truthOf(old.Name); old.Name == f.Name {
					break
				}
				if w.rack != nil { // the shadow of a flow that was in hardware tells its total, or does not
					t = &truth{rebase: true}
				}
			}
		}
		next[f.Name] = t
	}
	if w.uncertain {
		for _, f := range list {
			same := func(o flow.Flow) bool { return o.Name == f.Name && o.Identity() == f.Identity() }
			lacks := func(set []flow.Flow) bool { return !slices.ContainsFunc(set, same) }
			if lacks(w.flows) || slices.ContainsFunc(w.perhaps, lacks) {
				next[f.Name] = &truth{rebase: true}
			}
		}
	}
	w.flows, w.truth, w.uncertain = list, next, false
	w.noteRefused()
}

// sites are the sites that count for a flow.
func (w *world) sites(f flow.Flow) (all []site) {
	for _, name := range w.interfaces {
		if (f.Interface == "" || f.Interface == name) && w.exists(name) {
			all = append(all, site{name, f.Direction == flow.Egress})
		}
	}
	return all
}

// holds reports whether a site has a program.
func (w *world) holds(s site) bool {
	return slices.ContainsFunc(w.host.Held(s.name), func(at memkernel.Hook) bool { return (at == memkernel.TCXEgress) == s.egress })
}

// held reports whether every site that counts for a flow has a program.
func (w *world) held(f flow.Flow) bool {
	return !slices.ContainsFunc(w.sites(f), func(s site) bool { return !w.holds(s) })
}

// noteRefused notes, for each flow whose total has just begun, the sites without a program. If other flows have counted at one, its
// outage is one of the new flow, too.
func (w *world) noteRefused() {
	needed := make(map[site]bool)
	for _, f := range w.flows {
		for _, s := range w.sites(f) {
			needed[s] = true
			if t := w.truthOf(f.Name); !t.known && w.relied[s] && !w.holds(s) {
				t.possible = true
			}
		}
	}
	was := w.relied
	w.relied = make(map[site]bool)
	for s := range needed {
		w.relied[s] = w.holds(s) || was[s]
	}

	for _, f := range w.flows {
		t := w.truthOf(f.Name)
		if t.known {
			continue
		}
		for _, s := range w.sites(f) {
			if w.refusing[s] && !w.holds(s) {
				if t.refused == nil {
					t.refused = make(map[site]bool)
				}
				t.refused[s] = true
			}
		}
	}
}

// check compares the mirror with the truth, when the instance has come to rest.
func (w *world) check() error {
	if w.engine == nil {
		return nil
	}
	w.settle(3 * time.Second)
	for name := range w.fresh {
		if len(w.host.Held(name)) > 0 {
			delete(w.fresh, name)
		}
	}
	w.counts.checks++
	w.loose = false
	if err := w.noteWithout(); err != nil {
		return err
	}
	r, err := shm.OpenReader(filepath.Join(w.home(w.boots), "mirror"), shm.ReaderOptions{})
	if err != nil {
		return fmt.Errorf("opening the mirror: %w", err)
	}
	defer r.Close()
	if w.rack != nil && w.rack.fault != nil {
		return violated("%v", w.rack.fault)
	}
	if err := w.checkAudit(); err != nil {
		return err
	}
	for _, f := range w.flows {
		if err := w.checkFlow(r, f); err != nil {
			return err
		}
	}
	w.tried = maps.Clone(w.without)
	return w.checkEithers()
}

// checkFlow compares the entry of one flow with the truth about it, and begins a new count from there.
func (w *world) checkFlow(r *shm.Reader, f flow.Flow) error {
	t := w.truthOf(f.Name)
	found, err := r.Find(f.Name)
	if err != nil {
		return err
	}
	if w.without[f.Name] {
		w.counts.without++
		return nil
	}
	if len(found) != 1 {
		return violated("%s: it has %d entries in the mirror", f.Name, len(found))
	}
	c, err := r.Counter(found[0].Handle)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	v, err := c.Load()
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	n := found[0].Continuity.Discontinuities
	if w.rack != nil {
		if v.Bytes != 60*v.Packets {
			return violated("%s: %d packets of 60 bytes have %d bytes", f.Name, v.Packets, v.Bytes)
		}
		return w.checkOver(f, t, v.Packets, uint64(n))
	}
	w.trace("%s: %d packets, %d discontinuities; the programs have seen %d, %d were missed", f.Name, v.Packets, n, t.seen, t.missed)
	if t.rebase {
		*t = truth{seen: v.Packets, last: n, known: true}
		return nil
	}
	if (n > t.last || t.mayHaveSlot) && v.Packets >= t.seen && v.Packets <= t.seen+t.unsure {
		t.seen = v.Packets
	} else {
		t.seen += t.mine
	}
	t.unsure, t.mine, t.mayHaveSlot = 0, 0, false
	switch {
	case v.Packets > t.seen:
		return violated("%s: the total is %d, and the programs have counted %d packets", f.Name, v.Packets, t.seen)
	case v.Packets < t.seen:
		return violated("%s: the total is %d, and the programs have counted %d packets: what a pinned slot has counted was dropped", f.Name, v.Packets, t.seen)
	case v.Bytes != 60*v.Packets:
		return violated("%s: %d packets of 60 bytes have %d bytes", f.Name, v.Packets, v.Bytes)
	case t.known && n < t.last:
		return violated("%s: the discontinuities fell from %d to %d", f.Name, t.last, n)
	case t.known && n > t.last && !t.possible:
		return violated("%s: a discontinuity without a possible loss", f.Name)
	case !t.known && n > 0 && !t.possible:
		return violated("%s: a new total begins with a discontinuity", f.Name)
	case n == t.last && t.missed > 0 && w.held(f):
		return violated("%s: %d packets are missing from the total, and no discontinuity says so", f.Name, t.missed)
	case n == t.last && t.twice > 0:
		return violated("%s: %d packets were counted twice, and no discontinuity says so", f.Name, t.twice)
	}
	if n > t.last {
		t.twice = 0
	}
	if n > t.last || t.missed == 0 && w.held(f) {
		t.missed, t.possible = 0, !w.held(f)
	}
	t.known, t.last = true, n
	for s := range t.refused {
		if w.holds(s) {
			delete(t.refused, s)
		}
	}
	return nil
}

// errRefused is the error with which a hook refuses a program.
var errRefused = unix.EOPNOTSUPP

// hooksOf are the hooks of one direction.
func hooksOf(egress bool) []memkernel.Hook {
	if egress {
		return []memkernel.Hook{memkernel.TCXEgress}
	}
	return []memkernel.Hook{memkernel.XDP, memkernel.TCXIngress}
}

func parseFlows(text string) ([]flow.Flow, error) {
	var list []flow.Flow
	for _, word := range strings.Fields(text) {
		f, err := parseFlow(word)
		if err != nil {
			return nil, err
		}
		list = append(list, f)
	}
	return list, nil
}

// parseFlow parses NAME=PORT[@INTERFACE][>][!][^PRIORITY][~BACKEND]. PORT may be "*", for each port. A flow has the packets that
// arrive or, with ">", those that are sent. "!" drops them.
func parseFlow(text string) (flow.Flow, error) {
	name, rest, ok := strings.Cut(text, "=")
	if !ok {
		return flow.Flow{}, fmt.Errorf("%q is no flow", text)
	}
	f := flow.Flow{Name: name, Action: flow.Count, Direction: flow.Ingress}
	rest, word, _ := strings.Cut(rest, "~")
	f.Backend = flow.Backend(word)
	rest, priority, ok := strings.Cut(rest, "^")
	if ok {
		n, err := strconv.ParseUint(priority, 10, 16)
		if err != nil {
			return flow.Flow{}, fmt.Errorf("%q is no flow: %w", text, err)
		}
		f.Priority = uint16(n)
	}
	if rest, ok = strings.CutSuffix(rest, "!"); ok {
		f.Action = flow.Drop
	}
	if rest, ok = strings.CutSuffix(rest, ">"); ok {
		f.Direction = flow.Egress
	}
	port, ifname, _ := strings.Cut(rest, "@")
	f.Interface = ifname
	var err error
	match := "udp dport " + port
	if port == "*" {
		match = "udp"
	}
	f.Match, err = flow.ParseMatch(match)
	return f, err
}
