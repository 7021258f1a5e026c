package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/ibv/flexio"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/published"
	"github.com/flowtally/flowtally/internal/lab/soft"
	"github.com/flowtally/flowtally/shm/shmtest"
)

// uverbs is below the host's RDMA libraries.
var uverbs soft.Kernel

func TestMain(m *testing.M) {
	uverbs.Preload()
	code := m.Run()
	if err := uverbs.Close(); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// instance runs an instance with words reserved under the name app, and returns the options of the example.
func instance(t *testing.T) (dataplane.Service, options) {
	t.Helper()
	uverbs.Need(t)
	device := lab.Unique("mlx5_")
	ibvtest.Env{Devices: []ibvtest.Device{{Name: device, Netdev: "lo"}}}.Set(t.Setenv)
	path := filepath.Join(t.TempDir(), "dpa.mirror")
	svc, err := engine.New(t.Context(), dataplane.Config{
		Instance: "dpa", Words: []string{"app"}, Mirror: dataplane.MirrorConfig{Path: path, Counters: 64, History: -1},
		Poll: dataplane.PollConfig{Period: time.Millisecond, IdlePeriod: time.Millisecond},
	}, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := svc.Close(); err != nil {
			t.Error(err)
		}
	})
	return svc, options{mirror: path, words: "app", device: device}
}

// must returns v unless there is an error.
func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// dpa stands for the DPA program: it knows the bytes of the job, and has a queue pair of the same device that writes by
// their key. Its words grow in memory of its own.
type dpa struct {
	job   job
	words *ibv.MR
	cq    *ibv.CQ
	qp    *ibv.QP
}

// newDPA makes the queue pair in the domain of the DPA's process, connected to itself.
func newDPA(t *testing.T, h *host, b []byte) *dpa {
	t.Helper()
	d := &dpa{job: job{addr: binary.LittleEndian.Uint64(b), lkey: binary.LittleEndian.Uint32(b[8:]), rkey: binary.LittleEndian.Uint32(b[12:])}}
	closing := func(c io.Closer) {
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	d.words = must(h.pd.AllocMR(16, ibv.AccessLocalWrite))(t)
	closing(d.words)
	d.cq = must(h.dev.CreateCQ(ibv.CQOptions{CQE: 4}))(t)
	closing(d.cq)
	d.qp = must(h.pd.CreateQP(ibv.QPOptions{
		Type: ibv.QPTRC, SendCQ: d.cq, RecvCQ: d.cq, Cap: ibv.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
	}))(t)
	closing(d.qp)
	port := must(h.dev.QueryPort(1))(t)
	way := ibv.AHAttr{IsGlobal: true, PortNum: 1, GRH: ibv.GlobalRoute{DGID: must(h.dev.QueryGID(1, 0))(t), HopLimit: 64}}
	if err := errors.Join(
		d.qp.Modify(ibv.QPAttr{State: ibv.QPSInit, PortNum: 1, AccessFlags: ibv.AccessRemoteWrite},
			ibv.QPAttrState|ibv.QPAttrPort|ibv.QPAttrPKeyIndex|ibv.QPAttrAccessFlags),
		d.qp.Modify(ibv.QPAttr{State: ibv.QPSRTR, PathMTU: port.ActiveMTU, DestQPNum: d.qp.Number(), MaxDestRdAtomic: 1, MinRNRTimer: 12, AH: way},
			ibv.QPAttrState|ibv.QPAttrAV|ibv.QPAttrPathMTU|ibv.QPAttrDestQPN|ibv.QPAttrRQPSN|ibv.QPAttrMaxDestRdAtomic|ibv.QPAttrMinRNRTimer),
		d.qp.Modify(ibv.QPAttr{State: ibv.QPSRTS, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 1},
			ibv.QPAttrState|ibv.QPAttrSQPSN|ibv.QPAttrTimeout|ibv.QPAttrRetryCnt|ibv.QPAttrRNRRetry|ibv.QPAttrMaxQPRdAtomic),
	); err != nil {
		t.Fatal(err)
	}
	return d
}

// count adds to both words, and writes them at an offset from those of the job. It returns the status of the write.
func (d *dpa) count(t *testing.T, comp, errs, offset uint64) ibv.WCStatus {
	t.Helper()
	own := d.words.Bytes()
	binary.LittleEndian.PutUint64(own, binary.LittleEndian.Uint64(own)+comp)
	binary.LittleEndian.PutUint64(own[8:], binary.LittleEndian.Uint64(own[8:])+errs)
	if _, err := d.qp.PostSend([]ibv.SendWR{{
		Opcode: ibv.WRRDMAWrite, Flags: ibv.SendSignaled, RemoteAddr: d.job.addr + offset, RKey: d.job.rkey,
		SGE: ibv.SGE{Addr: d.words.Addr(), Length: 16, LKey: d.words.LKey()},
	}}); err != nil {
		t.Fatal(err)
	}
	var done [1]ibv.WC
	lab.Eventually(t, "the write completes", func() bool {
		n, err := d.cq.Poll(done[:])
		if err != nil {
			t.Fatal(err)
		}
		return n == 1
	})
	return done[0].Status
}

// A device that has the job alone counts into the mirror, exactly.
func TestWritesByTheKeyOfTheJobAreCounted(t *testing.T) {
	svc, o := instance(t)
	h := must(open(o))(t)
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	d := newDPA(t, h, h.job().bytes())
	const rounds = 200
	for range rounds {
		if status := d.count(t, 3, 1, 0); status != ibv.WCSuccess {
			t.Fatal(status)
		}
	}
	if comp, errs := h.words.Load(); comp != 3*rounds || errs != rounds {
		t.Errorf("the words have %d completions and %d errors, want %d and %d", comp, errs, 3*rounds, rounds)
	}
	r := shmtest.MustOpen(t, o.mirror)
	lab.Eventually(t, "the mirror has all", func() bool { return published.Completions(t, r, "app") == 3*rounds })
	if state := published.Words(t, svc, "app"); state != dataplane.WordsTaken {
		t.Errorf("the words are %s", state)
	}

	// The region ends behind the words: the rest of the page is out of reach.
	if status := d.count(t, 1, 1, 8); status != ibv.WCRemAccessErr {
		t.Errorf("a write past the words: %v, want %v", status, ibv.WCRemAccessErr)
	}
	if comp, _ := h.words.Load(); comp != 3*rounds {
		t.Errorf("and the words have %d completions", comp)
	}
}

// The example says what it has opened, and gives the words back at its end.
func TestExampleHoldsTheWordsUntilItsInputEnds(t *testing.T) {
	svc, o := instance(t)
	var out bytes.Buffer
	if err := run(&out, readFunc(func() {
		if state := published.Words(t, svc, "app"); state != dataplane.WordsTaken {
			t.Errorf("while it waits the words are %s", state)
		}
	}), o); err != nil {
		t.Fatal(err)
	}
	var first string
	var addr uint64
	var key uint32
	if _, err := fmt.Sscanf(out.String(), "%s 16 bytes at %v, key %v\n", &first, &addr, &key); err != nil || first != "app:" || addr%16 != 0 {
		t.Errorf("%v: %q", err, out.String())
	}
	_, rest, _ := strings.Cut(out.String(), "\n")
	const want = `flexio_process_create: flexio_process_attr is valid
flexio_window_create
flexio_copy_from_host
flexio_event_handler_create: flexio_event_handler_attr is valid
flexio_cq_create: flexio_cq_attr is valid
flexio_device_mkey_create: flexio_mkey_attr is valid
flexio_rq_create: flexio_wq_attr is valid
flexio_event_handler_run
not called: no Flex IO SDK here
`
	if rest != want {
		t.Errorf("printed\n%s\nwant\n%s", rest, want)
	}
	lab.Eventually(t, "the words are free", func() bool { return published.Words(t, svc, "app") == dataplane.WordsFree })
}

// readFunc is an input that calls f and ends.
type readFunc func()

func (f readFunc) Read([]byte) (int, error) {
	f()
	return 0, io.EOF
}

// The queues and the job of the DPA program do not overlap, and lie in its heap.
func TestPlacesInTheHeapAreApart(t *testing.T) {
	type place struct {
		name    string
		at, end uint64
	}
	places := []place{
		{"job", jobAt, jobAt + uint64(len(job{}.bytes()))},
		{"record of the CQ", cqDBRAt, cqDBRAt + 8},
		{"record of the RQ", rqDBRAt, rqDBRAt + 8},
		{"ring of the CQ", cqRingAt, cqRingAt + 64<<logDepth},
		{"ring of the RQ", rqRingAt, rqRingAt + 16<<logDepth},
		{"buffers", buffersAt, buffersAt + buffersLen},
	}
	for i, p := range places {
		if i > 0 && p.at < places[i-1].end || p.end > 64<<10 {
			t.Errorf("%s: %#x to %#x, behind %+v", p.name, p.at, p.end, places[max(i-1, 0)])
		}
	}

	// The device's command of the same attributes accepts the places too.
	for _, c := range calls(noSDK) {
		if c.structure == "flexio_cq_attr" {
			if _, err := flexio.CreateCQ(c.attr, flexio.CQPlacement{HeapBase: noSDK.heap, HeapSize: 64 << 10, HeapUMEMID: 1}); err != nil {
				t.Error(err)
			}
		}
	}
}
