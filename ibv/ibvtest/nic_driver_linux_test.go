package ibvtest_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// The declarations of nic.h in Go: the same names, the same layout.

const (
	nicETH = 1 << iota
	nicCVLAN
	nicSVLAN
	nicCVLAN2
	nicSVLAN2
	nicTAG
	nicTAG2
	nicIPV4
	nicIPV6
	nicIP
	nicPROTO
	nicTCP
	nicUDP
	nicPORTS
	nicTCPFLAGS
	nicICMP
	nicESP
	nicMPLS
)

const (
	nicVXLAN = 1 << iota
	nicGRE
	nicGRECSUM
	nicGREKEY
	nicGRESEQ
	nicMPLSGRE
	nicMPLSUDP
)

const (
	nicEgress = 1 << iota
	nicDontTrap
	nicDrop
	nicDefaultMiss
	nicLast
)

type nicLayer struct {
	Present              uint32
	EtherType            uint16
	TCI                  [2]uint16
	DMAC, SMAC           [6]byte
	Proto, TOS, TTL      uint8
	Frag                 uint8
	Sport, Dport         uint16
	TCPFlags             uint16
	Src, Dst             [16]byte
	FlowLabel, SPI, MPLS uint32
	ICMPType, ICMPCode   uint8
	_                    uint16
}

type nicKey struct {
	Outer, Inner nicLayer
	Tunnel       uint32
	VNI, GREKey  uint32
	GREProtocol  uint16
	_            uint16
	MPLS         uint32
	_            uint32
}

type nicMatch struct{ Value, Mask nicKey }

func (k *nicKey) hex(t testing.TB) string {
	t.Helper()
	var b bytes.Buffer
	if err := binary.Write(&b, binary.NativeEndian, k); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(b.Bytes())
}

// nicRule is a rule of the engine.
type nicRule struct {
	priority uint16
	flags    uint32
	counter  int
	match    nicMatch
}

// nicStats is struct nic_stats.
type nicStats struct {
	errno                                            syscall.Errno
	ingress, egress, frames, drops, truncated, rules uint64
}

// nicDriver talks to testdata/nic/driver.c, one command at a time.
type nicDriver struct {
	t   testing.TB
	cmd *exec.Cmd
	in  *bufio.Writer
	out *bufio.Reader
}

// workDir is the directory into which TestMain compiles the shared programs.
var workDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "ibvtest")
	if err != nil {
		panic(err)
	}
	workDir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// compile makes a program of C sources, once in a run of the tests.
func compile(t testing.TB, name string, sources []string, flags ...string) string {
	t.Helper()
	need.Tool(t, "gcc")
	program := filepath.Join(workDir, name)
	if _, err := os.Stat(program); err == nil {
		return program
	}
	args := append([]string{"-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-Isrc", "-I../internal/abi", "-o", program}, flags...)
	if out, err := exec.Command("gcc", append(args, sources...)...).CombinedOutput(); err != nil {
		t.Fatalf("compiling %s: %v\n%s", name, err, out)
	}
	return program
}

// nicProgram is the driver and the engine it drives; sanitizedNIC ends at the first bad
// access.
func nicProgram(t testing.TB) string {
	t.Helper()
	return compile(t, "nic", nicSources(t))
}

func sanitizedNIC(t testing.TB) string {
	t.Helper()
	return compile(t, "nic-sanitized", nicSources(t), sanitized...)
}

func nicSources(t testing.TB) []string {
	t.Helper()
	sources, err := filepath.Glob("src/nic*.c")
	if err != nil || len(sources) == 0 {
		t.Fatalf("src/nic*.c: %v, %v", sources, err)
	}
	return append(sources, "testdata/nic/driver.c")
}

// sanitized are gcc's flags for a build that ends at the first bad access.
var sanitized = []string{"-fsanitize=address,undefined", "-fno-sanitize-recover=all"}

// startNIC runs a driver in a namespace, or in this one when ns is nil, with more in
// its environment.
func startNIC(t testing.TB, program string, ns *lab.Netns, env ...string) *nicDriver {
	t.Helper()
	d := &nicDriver{t: t, cmd: exec.Command(program)}
	d.cmd.Env = append(os.Environ(), env...)
	in, err := d.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	d.cmd.Stderr = &stderr
	start := d.cmd.Start
	if ns != nil {
		start = func() error { return ns.Do(d.cmd.Start) }
	}
	if err := start(); err != nil {
		t.Fatal(err)
	}
	d.in, d.out = bufio.NewWriter(in), bufio.NewReaderSize(out, 1<<16)
	t.Cleanup(func() {
		in.Close()
		io.Copy(io.Discard, out)
		if err := d.cmd.Wait(); err != nil {
			t.Errorf("the driver: %v\n%s", err, &stderr)
		}
		if stderr.Len() > 0 {
			t.Logf("the driver says: %s", &stderr)
		}
	})
	return d
}

// ask returns the words of the reply behind "ok", or the errno.
func (d *nicDriver) ask(format string, args ...any) ([]string, syscall.Errno) {
	d.t.Helper()
	fmt.Fprintf(d.in, format+"\n", args...)
	if err := d.in.Flush(); err != nil {
		d.t.Fatal(err)
	}
	line, err := d.out.ReadString('\n')
	if err != nil {
		d.t.Fatalf("%.200q: the driver ended: %v", fmt.Sprintf(format, args...), err)
	}
	words := strings.Fields(line)
	if words[0] == "err" {
		return nil, syscall.Errno(number(d.t, words[1]))
	}
	return words[1:], 0
}

func (d *nicDriver) must(format string, args ...any) []string {
	d.t.Helper()
	words, errno := d.ask(format, args...)
	if errno != 0 {
		d.t.Fatalf("%.200q: %v", fmt.Sprintf(format, args...), errno)
	}
	return words
}

func (d *nicDriver) rule(r nicRule) syscall.Errno {
	d.t.Helper()
	_, errno := d.ask("rule %d %d %d %s %s", r.priority, r.flags, r.counter, r.match.Value.hex(d.t), r.match.Mask.hex(d.t))
	return errno
}

func (d *nicDriver) read(counter int) lab.Tally {
	d.t.Helper()
	words := d.must("read %d", counter)
	return lab.Tally{Packets: number(d.t, words[0]), Bytes: number(d.t, words[1])}
}

func (d *nicDriver) stats() nicStats {
	d.t.Helper()
	var n []uint64
	for _, word := range d.must("stats") {
		n = append(n, number(d.t, word))
	}
	return nicStats{syscall.Errno(n[0]), n[1], n[2], n[3], n[4], n[5], n[6]}
}

func number(t testing.TB, word string) uint64 {
	t.Helper()
	var n uint64
	if _, err := fmt.Sscan(word, &n); err != nil {
		t.Fatalf("%q: %v", word, err)
	}
	return n
}
