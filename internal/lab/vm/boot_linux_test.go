//go:build vm

package vm

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

func build(t *testing.T, dir string, cgo bool, args ...string) {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if cgo {
		cmd.Env = append(cmd.Env, "CGO_ENABLED=1")
	}
	cmd.Dir = "../../.."
	start := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, out)
	}
	t.Logf("go %v: %v", args, time.Since(start))
}

func TestBoot(t *testing.T) {
	dir, err := DefaultDir()
	if err != nil {
		t.Fatal(err)
	}
	c := Cache{Dir: dir, Log: slog.Default()}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	name, err := c.Newest(ctx, "linux-image-6.12-amd64")
	if err != nil {
		t.Fatal(err)
	}
	kdir, err := c.Package(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	k, err := OpenKernel(kdir)
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	build(t, bin, false, "build", "-ldflags=-s -w", "-o", bin+"/init", "./internal/lab/vm/init")
	build(t, bin, true, "build", "-ldflags=-s -w", "-o", bin+"/", "./cmd/flowtally", "./cmd/flowtally-plugin")
	build(t, bin, true, "test", "-c", "-tags=vm", "-ldflags=-s -w", "-o", bin+"/guest.test", "./internal/lab/vm/guest")
	img := NewImage()
	img.File(filepath.Join(bin, "init"), "/init", 0o755)
	var roots []string
	for _, p := range []string{"libibverbs1", "ibverbs-providers", "libnl-3-200", "libnl-route-3-200"} {
		r, err := c.Package(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		roots = append(roots, r)
	}
	roots = append(roots, "/")
	for _, p := range []string{"flowtally", "flowtally-plugin", "guest.test"} {
		if err := img.Program(filepath.Join(bin, p), "/usr/bin/"+p, roots...); err != nil {
			t.Fatal(err)
		}
	}
	mods, err := k.Modules("veth", "crc32_generic", "ib_core", "ib_uverbs", "udp_tunnel", "ip6_udp_tunnel", "rdma_rxe", "iw_cm", "ib_cm", "configfs", "rdma_cm", "rdma_ucm")
	if err != nil {
		t.Fatal(err)
	}
	var s Script
	for _, m := range mods {
		path := "/lib/modules/" + m.Name + ".ko"
		img.Bytes(path, m.Data, 0o644)
		s.Modules = append(s.Modules, path)
	}
	t.Log(s.Modules)
	s.Steps = []Step{
		{Name: "guest", Args: []string{"/usr/bin/guest.test", "-test.v"}},
		{Name: "doctor", Args: []string{"/usr/bin/flowtally", "doctor", "-o", "json"}},
	}
	start := time.Now()
	res, err := Machine{Kernel: k, Image: img, Dir: filepath.Join(dir, "logs", k.Release)}.Run(ctx, s)
	t.Log(time.Since(start))
	if err != nil {
		t.Fatal(err)
	}
	for n, s := range res.Steps {
		t.Logf("%s: %d %s %v\n%s\n%s", n, s.Code, s.Error, s.Took, s.Stdout, s.Stderr)
	}
}
