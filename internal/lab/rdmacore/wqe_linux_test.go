//go:build releases

package rdmacore

import (
	"encoding/hex"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/ibv/flexio"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/soft"
)

// TestKernelSendQueueDecodesToThePostedRequests decodes the requests that the real libmlx5 of each release writes to a
// send queue: package flexio reads the posted opcode, addresses, length and keys.
func TestKernelSendQueueDecodesToThePostedRequests(t *testing.T) {
	need.Root(t)
	need.Tool(t, "gcc")
	need.Header(t, "infiniband/mlx5dv.h")
	var software soft.Libraries
	t.Cleanup(func() { software.Close() })
	program := filepath.Join(t.TempDir(), "wqe")
	if out, err := exec.Command("gcc", "-D_GNU_SOURCE", "-O1", "-o", program, "testdata/wqe.c", "-lmlx5", "-libverbs").CombinedOutput(); err != nil {
		t.Fatalf("compiling the program that posts: %v\n%s", err, out)
	}
	for _, suite := range Suites() {
		t.Run(suite, func(t *testing.T) {
			ns := netdevs(t)
			root := release(t, suite).NewRoot(t)
			e := ibvtest.Env{Devices: []ibvtest.Device{{Name: "mlx5_0", Netdev: "v0"}}}
			env := append(root.Preload(t, software.Get(t).Kernel, "v0", "v1"), e.Environ()...)
			var out []byte
			if err := ns.Do(func() (err error) {
				out, err = root.Run(t.Context(), program, env)
				return err
			}); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			if len(lines) != 5 {
				t.Fatalf("the program printed\n%s", out)
			}
			for _, line := range lines {
				compareWQE(t, line)
			}
		})
	}
}

// compareWQE compares a line of testdata/wqe.c with the decoded block.
func compareWQE(t *testing.T, line string) {
	var qpn, index, opcode, rkey, length, lkey uint32
	var raddr, addr uint64
	var text string
	if _, err := fmt.Sscan(line, &qpn, &index, &opcode, &raddr, &rkey, &addr, &length, &lkey, &text); err != nil {
		t.Fatal(err, line)
	}
	block, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	ctrl, err := flexio.Decode("flexio_dev_wqe_ctrl_seg", block)
	if err != nil {
		t.Fatal(err)
	}
	wire := map[uint32]uint32{0: 0x08, 2: 0x0a, 4: 0x10}[opcode] // enum ibv_wr_opcode to MLX5_OPCODE_*
	segments, data := uint32(2), block[16:]
	if rdma := opcode != 2; rdma {
		segments, data = 3, block[32:]
		remote, err := flexio.Decode("flexio_dev_wqe_rdma_seg", block[16:])
		if err != nil || remote.Uint("raddr") != raddr || remote.Uint("rkey") != uint64(rkey) {
			t.Errorf("request %d: the peer's memory is %+v (%v), posted were %#x and key %#x", index, remote, err, raddr, rkey)
		}
	}
	header := uint32(ctrl.Uint("idx_opcode"))
	completion := ctrl.Uint("signature_fm_ce_se") >> 2 & 3
	if header&0xff != wire || header>>8&0xffff != index || uint32(ctrl.Uint("qpn_ds")) != qpn<<8|segments || completion != 2 {
		t.Errorf("request %d of queue pair %d with opcode %d: %+v", index, qpn, wire, ctrl)
	}
	local, err := flexio.Decode("flexio_dev_wqe_mem_ptr_send_data_seg", data)
	if err != nil || local.Uint("addr") != addr || local.Uint("byte_count") != uint64(length) || local.Uint("lkey") != uint64(lkey) {
		t.Errorf("request %d: the data are %+v (%v), posted were %d bytes at %#x, key %#x", index, local, err, length, addr, lkey)
	}
	t.Logf("request %d: opcode %#x, %d bytes, remote address %#x: as posted", index, wire, length, raddr)
}
