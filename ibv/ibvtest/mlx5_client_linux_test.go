package ibvtest_test

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/frame"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/seed"
)

// Commands and the statuses of refusals.
const (
	queryHCACap      = 0x100
	allocFlowCounter = 0x939
	queryFlowCounter = 0x93b

	badParam, badInputLen, badOutputLen = 0x03, 0x50, 0x51
	atBit, atLength                     = 0x1b000000, 0x1e000000
)

// mlx5Client is testdata/mlx5/client.c on a device of a wire's near end.
type mlx5Client struct {
	*nicDriver
	wire *lab.Wire
}

func newMLX5Client(t *testing.T, env ibvtest.Env) *mlx5Client {
	t.Helper()
	need.Cap(t, "net_admin", "net_raw")
	need.Netns(t)
	need.Header(t, "infiniband/verbs.h", "infiniband/mlx5dv.h")
	need.RDMACore(t)
	libs := libraries(t, "strict", "-Werror")
	// Linked as any user of rdma-core is: with symbol versions, and by soname. The shim has __mlx5dv_create_flow.
	program := compile(t, "mlx5-client", []string{"testdata/mlx5/client.c", libs.Shim, "-lmlx5", "-libverbs"}, "-Wl,-rpath,"+filepath.Dir(libs.Shim))
	w, err := lab.NewWire(lab.WireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	env.Devices = []ibvtest.Device{{Name: "mlx5_0", Netdev: w.Near.Name}}
	preload := append(env.Environ(), "LD_PRELOAD="+libs.Kernel, "FLOWTALLY_IBVTEST_SYSFS="+t.TempDir())
	return &mlx5Client{startNIC(t, program, w.Near.NS, preload...), w}
}

// words32 is a command of 32-bit words.
func words32(words ...uint32) string {
	var b []byte
	for _, w := range words {
		b = binary.BigEndian.AppendUint32(b, w)
	}
	return hex.EncodeToString(b)
}

// result is the result of a command.
type result struct {
	errno    syscall.Errno
	status   byte
	syndrome uint32
	out      []byte
}

// command passes a command to "create", "query OBJ" or "general"; obj names the created object.
func (c *mlx5Client) command(how, in string, outlen int) (r result, obj string) {
	c.t.Helper()
	fmt.Fprintf(c.in, "%s %s %d\n", how, in, outlen)
	if err := c.in.Flush(); err != nil {
		c.t.Fatal(err)
	}
	line, err := c.out.ReadString('\n')
	if err != nil {
		c.t.Fatal(err)
	}
	words := strings.Fields(line)
	switch {
	case words[0] == "err":
		r.errno = syscall.Errno(number(c.t, words[1]))
	case how == "create":
		obj = words[1]
	}
	if r.out, err = hex.DecodeString(words[len(words)-1]); err != nil || len(r.out) != outlen {
		c.t.Fatalf("%q: %v", line, err)
	}
	if len(r.out) >= 8 {
		r.status, r.syndrome = r.out[0], binary.BigEndian.Uint32(r.out[4:])
	}
	return r, obj
}

// alloc makes counters; log and bulk are the fields of ALLOC_FLOW_COUNTER.
func (c *mlx5Client) alloc(log, bulk uint32) (obj string, id uint32) {
	c.t.Helper()
	r, obj := c.command("create", words32(allocFlowCounter<<16, 0, 0, log<<8|bulk), 16)
	if r.errno != 0 {
		c.t.Fatalf("%+v", r)
	}
	return obj, binary.BigEndian.Uint32(r.out[8:])
}

// query is a QUERY_FLOW_COUNTER of n counters from id on; flags is the word that n is in.
func query(flags, n, id uint32) string {
	return words32(queryFlowCounter<<16, 0, 0, 0, 0, 0, flags|n, id)
}

const clearBit = 1 << 31

// counts returns the counters in the output.
func (r result) counts() (all []lab.Tally) {
	for b := r.out[16:]; len(b) >= 16; b = b[16:] {
		all = append(all, lab.Tally{Packets: binary.BigEndian.Uint64(b), Bytes: binary.BigEndian.Uint64(b[8:])})
	}
	return all
}

// udpPort is the outer section of a match on a UDP port, and its mask.
func udpPRM(port uint64) (mask, value string) {
	var m, v prm
	m.set(0x80, 8, 0xff).set(0xf0, 16, 0xffff)
	v.set(0x80, 8, 17).set(0xf0, 16, port)
	return hex.EncodeToString(m[:64]), hex.EncodeToString(v[:64])
}

// Flow i counts in counter i. One command reads all counters, and clears them on request.
func TestMLX5BulkCountsWithoutTakingPackets(t *testing.T) {
	statistics := filepath.Join(t.TempDir(), "calls")
	c := newMLX5Client(t, ibvtest.Env{Statistics: statistics})
	c.must("supported")
	c.must("open 1")
	obj, id := c.alloc(7, 0)
	mask, _ := udpPRM(0)
	m := c.must("matcher 3 0 1 %s", mask)[0]
	var streams []lab.Stream
	for i := range 4 {
		_, value := udpPRM(uint64(1000 + i))
		c.must("flow 0 %s %s offset:%s:%d miss", m, value, obj, i)
		streams = append(streams, stream(fmt.Sprint(i), uint16(1000+i), 60+10*i, frame.Eth{}))
	}
	sent := send(t, c.wire.Far, streams, 20_000, lab.SenderOptions{Seed: seed.Uint64(t)}).Sent()
	r, _ := c.command("query "+obj, query(clearBit, 128, id), 16+128*16)
	calls, err := ibvtest.ReadStatistics(statistics)
	if r.errno != 0 || err != nil || calls["QUERY_FLOW_COUNTER"] != 1 {
		t.Fatalf("%v in %d commands, %v", r.errno, calls["QUERY_FLOW_COUNTER"], err)
	}
	for i, got := range r.counts() {
		var want lab.Tally
		if i < len(sent) {
			want = sent[i]
		}
		if got != want {
			t.Errorf("counter %d: %+v, want %+v", i, got, want)
		}
	}
	if again, _ := c.command("query "+obj, query(0, 0, id+1), 32); again.errno != 0 || again.counts()[0] != (lab.Tally{}) {
		t.Errorf("behind a clear: %+v", again)
	}
	if n := calls["__mlx5dv_create_flow"]; n != 4 {
		t.Errorf("%d calls of __mlx5dv_create_flow, want 4", n)
	}
}

// The bit is where firmware stopped reading. A command refused by uverbs never reaches firmware.
func TestMLX5RefusedCommandReturnsStatusAndBit(t *testing.T) {
	c := newMLX5Client(t, ibvtest.Env{})
	c.must("open 1")
	single, one := c.alloc(0, 0)
	bulk, id := c.alloc(0, 1)
	if id%4 != 0 || id <= one {
		t.Errorf("a bulk from %d on, behind %d", id, one)
	}
	alloc := func(third, fourth uint32) string { return words32(allocFlowCounter<<16, 0, third, fourth) }
	for _, test := range []struct {
		name, how, in string
		outlen        int
		errno         syscall.Errno
		status        byte
		syndrome      uint32
	}{
		{"a bulk of 2048", "create", alloc(0, 0x10), 16, 0, 0, 0},
		{"a bulk of 2^15", "create", alloc(0, 15<<8), 16, 0, 0, 0},
		{"a bulk of two sizes", "create", alloc(0, 3), 16, syscall.EREMOTEIO, badParam, atBit + 0x78},
		{"a bulk that is too large", "create", alloc(0, 0x20), 16, syscall.EREMOTEIO, badParam, atBit + 0x78},
		{"2^16 counters", "create", alloc(0, 16<<8), 16, syscall.EREMOTEIO, badParam, atBit + 0x73},
		{"both ways of a size", "create", alloc(0, 7<<8|1), 16, syscall.EREMOTEIO, badParam, atBit + 0x73},
		{"a reserved bit", "create", alloc(1, 0), 16, syscall.EREMOTEIO, badParam, atBit + 0x5f},
		{"a reserved bit beside the size", "create", alloc(0, 1<<13), 16, syscall.EREMOTEIO, badParam, atBit + 0x72},
		{"an answer of 12 bytes", "create", alloc(0, 0), 12, syscall.EINVAL, 0xee, 0xeeeeeeee},
		{"a command of 12 bytes", "create", alloc(0, 0)[:24], 16, syscall.EINVAL, 0xee, 0xeeeeeeee},
		{"another command", "create", query(0, 0, one), 16, syscall.EINVAL, 0xee, 0xeeeeeeee},
		{"one counter", "query " + single, query(0, 0, one), 32, 0, 0, 0},
		{"a counter of a bulk", "query " + bulk, query(0, 0, id+127), 32, 0, 0, 0},
		{"a part of a bulk", "query " + bulk, query(0, 8, id+4), 16 + 8*16, 0, 0, 0},
		{"the next object's", "query " + bulk, query(0, 0, id+128), 32, syscall.EINVAL, 0xee, 0xeeeeeeee},
		{"another object's", "query " + bulk, query(0, 0, one), 32, syscall.EINVAL, 0xee, 0xeeeeeeee},
		{"over the end", "query " + bulk, query(0, 128, id+4), 16 + 128*16, syscall.EREMOTEIO, badParam, atBit + 0xc2},
		{"not a multiple of 4", "query " + bulk, query(0, 6, id), 16 + 8*16, syscall.EREMOTEIO, badParam, atBit + 0xc2},
		{"not from a multiple of 4 on", "query " + bulk, query(0, 4, id+2), 16 + 8*16, syscall.EREMOTEIO, badParam, atBit + 0xe0},
		{"no room for the answer", "query " + bulk, query(0, 8, id), 16 + 8*16 - 1, syscall.EREMOTEIO, badOutputLen, atLength + 16 + 8*16},
		{"a dump to memory", "query " + bulk, query(1<<30, 8, id), 16 + 8*16, syscall.EREMOTEIO, badParam, atBit + 0xc1},
		{"an address without a dump", "query " + bulk, words32(queryFlowCounter<<16, 0, 0, 0, 1, 0, 0, id), 32, syscall.EREMOTEIO, badParam, atBit + 0x9f},
		{"half a query", "query " + bulk, query(0, 0, id)[:48], 32, syscall.EINVAL, 0xee, 0xeeeeeeee},
		{"capabilities", "general", words32(queryHCACap<<16, 1, 0, 0), 16 + 0x1000, 0, 0, 0},
		{"more capabilities", "general", words32(queryHCACap<<16, 0x41, 0, 0), 16 + 0x1000, 0, 0, 0},
		{"capabilities of another kind", "general", words32(queryHCACap<<16, 0x19, 0, 0), 16 + 0x1000, 0, 0, 0},
		{"half of the capabilities", "general", words32(queryHCACap<<16, 1, 0, 0), 16 + 0x800, 0, 0, 0},
		{"capabilities of no kind", "general", words32(queryHCACap<<16, 0x41<<1, 0, 0), 16 + 0x1000, syscall.EREMOTEIO, badParam, atBit + 0x30},
		{"capabilities without room", "general", words32(queryHCACap<<16, 1, 0, 0), 64, syscall.EREMOTEIO, badOutputLen, atLength + 16 + 0x800},
		{"a counter by the general way", "general", alloc(0, 0), 16, syscall.EINVAL, 0xee, 0xeeeeeeee},
	} {
		r, _ := c.command(test.how, test.in, test.outlen)
		if r.errno != test.errno || r.status != test.status || r.syndrome != test.syndrome {
			t.Errorf("%s: %v, status %#x, syndrome %#x, want %v, %#x, %#x", test.name, r.errno, r.status, r.syndrome, test.errno, test.status, test.syndrome)
		}
	}
	caps, _ := c.command("general", words32(queryHCACap<<16, 1, 0, 0), 16+0x1000)
	more, _ := c.command("general", words32(queryHCACap<<16, 0x41, 0, 0), 16+0x1000)
	if caps.out[16+4] != 0x80 || caps.out[16+0x310/8] != 0x1f || more.out[16+0x250/8] != 15 || more.out[16+0x258/8] != 2 {
		t.Errorf("the capabilities are not at their bits: %x %x", caps.out[16:32], more.out[16+0x48:16+0x50])
	}
}

// The cases are the refusals of libmlx5, mlx5_ib and firmware for matchers and flows.
func TestMLX5RefusedFlowsReturnTheErrnosOfTheDriver(t *testing.T) {
	c := newMLX5Client(t, ibvtest.Env{})
	if _, errno := c.ask("open 2"); errno != syscall.EINVAL {
		t.Errorf("opening with an unknown flag: %v", errno)
	}
	c.must("open 1")
	single, _ := c.alloc(0, 0)
	bulk, _ := c.alloc(0, 1)
	mask, value := udpPRM(53)
	_, other := udpPRM(54)
	for _, test := range []struct {
		name, ask string
		errno     syscall.Errno
	}{
		{"a matcher", "matcher 0 0 1 " + mask, 0},         // 0
		{"an egress matcher", "matcher 0 4 1 " + mask, 0}, // 1
		{"a low matcher", "matcher 16 0 1 " + mask, 0},    // 2
		{"a matcher of all", "matcher 15 0 0 " + "00", 0}, // 3
		{"dont-trap", "matcher 0 2 1 " + mask, syscall.EINVAL},
		{"a section without criteria", "matcher 0 0 0 " + mask, 0},                // 4: refused with its first flow
		{"a reserved bit", "matcher 0 0 1 " + strings.Repeat("00", 24) + "01", 0}, // 5
		{"a flow of a section without criteria", "flow 0 4 " + value + " miss", syscall.EINVAL},
		{"a flow of a reserved bit", "flow 0 5 00 miss", syscall.EINVAL},

		{"nothing to do", "flow 0 0 " + value + " counter:" + single, syscall.EINVAL},
		{"miss and drop", "flow 0 0 " + value + " miss drop", syscall.EOPNOTSUPP},
		{"two counters", "flow 0 0 " + value + " miss counter:" + single + " offset:" + bulk + ":1", syscall.EOPNOTSUPP},
		{"ibv_counters", "flow 0 0 " + value + " miss type:2", syscall.EOPNOTSUPP},
		{"an unknown action", "flow 0 0 " + value + " miss type:77", syscall.EOPNOTSUPP},
		{"an offset of a single counter", "flow 0 0 " + value + " miss offset:" + single + ":1", syscall.EINVAL},
		{"an offset behind the bulk", "flow 0 0 " + value + " miss offset:" + bulk + ":128", syscall.EINVAL},
		{"an offset of the old symbol", "flow 1 0 " + value + " miss offset:" + bulk + ":1", syscall.EOPNOTSUPP},
		{"a tag that is too large", "flow 0 0 " + value + " miss tag:16777216", syscall.EINVAL},
		{"a value outside the mask", "flow 0 3 " + value + " miss", syscall.EINVAL},
		{"a default miss of what leaves", "flow 0 1 " + value + " miss", syscall.EOPNOTSUPP},
		{"a priority above 15", "flow 0 2 " + value + " miss", syscall.ENOMEM},

		{"the first of a bulk", "flow 0 0 " + value + " miss counter:" + bulk, 0}, // 0
		{"the same match, which drops", "flow 0 0 " + value + " drop", syscall.EEXIST},
		{"the same flow", "flow 0 0 " + value + " miss counter:" + bulk, 0},               // 1
		{"the old symbol", "flow 1 0 " + other + " drop counter:" + single, 0},            // 2
		{"what leaves", "flow 0 1 " + value + " offset:" + bulk + ":127 tag:16777215", 0}, // 3

		{"the matcher of a flow", "unmatch 0", syscall.EBUSY},
		{"the counters of a flow", "destroy " + bulk, syscall.EBUSY},
		{"a flow's end", "unflow 0", 0},
		{"the counters of another flow", "destroy " + bulk, syscall.EBUSY},
		{"a flow's end", "unflow 1", 0},
		{"the counters of two flows still", "destroy " + bulk, syscall.EBUSY},
		{"a flow's end", "unflow 2", 0},
		{"a flow's end", "unflow 3", 0},
		{"the counters", "destroy " + bulk, 0},
		{"the matcher", "unmatch 0", 0},
		{"the same match again", "flow 0 3 00 miss", 0},
	} {
		if _, errno := c.ask("%s", test.ask); errno != test.errno {
			t.Errorf("%s: %v, want %v", test.name, errno, test.errno)
		}
	}
}

// Commands can also be made to fail by their names.
func TestMLX5IsRefusedWithoutDevX(t *testing.T) {
	t.Run("a device without", func(t *testing.T) {
		c := newMLX5Client(t, ibvtest.Env{Without: []string{"devx"}})
		if _, errno := c.ask("open 1"); errno != syscall.EINVAL {
			t.Errorf("open: %v", errno)
		}
	})
	t.Run("faults", func(t *testing.T) {
		c := newMLX5Client(t, ibvtest.Env{Fail: []ibvtest.Fault{
			{Verb: "QUERY_FLOW_COUNTER", Errno: "EIO", From: 2, To: 2}, {Verb: "FLOW_MATCHER_CREATE", Errno: "ENOSPC"},
		}})
		c.must("open 1")
		obj, id := c.alloc(0, 0)
		for i, want := range []syscall.Errno{0, syscall.EIO, 0} {
			if r, _ := c.command("query "+obj, query(0, 0, id), 32); r.errno != want {
				t.Errorf("query %d: %v, want %v", i+1, r.errno, want)
			}
		}
		if _, errno := c.ask("matcher 0 0 0 00"); errno != syscall.ENOSPC {
			t.Errorf("a matcher: %v", errno)
		}
	})
}
