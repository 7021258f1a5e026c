// Command demo is `make demo-rdma`: it runs `flowtally demo --backend rdma` over the libraries of a release of
// rdma-core and the uverbs kernel in software, by DevX and then by verbs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strconv"

	"github.com/flowtally/flowtally/internal/lab/rdmacore"
)

func main() {
	bin := flag.String("bin", "bin", "the directory that make build fills")
	release := flag.String("release", "", "the version of rdma-core, \"65.0\"; empty: the release of this machine's distribution")
	seconds := flag.Int("seconds", 5, "how long traffic is sent at full speed, by DevX and again by verbs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *bin, *release, *seconds)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo-rdma:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bin, version string, seconds int) error {
	if os.Geteuid() != 0 {
		return errors.New("only root can make a root for the libraries: make demo-rdma asks for it")
	}
	for _, tool := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("getting the libraries from an archive of Debian: %w", err)
		}
	}
	r, err := rdmacore.Find(ctx, slog.New(slog.NewTextHandler(os.Stderr, nil)), version)
	if err != nil {
		return err
	}
	for _, by := range []string{"devx", "verbs"} {
		if err := count(ctx, r, bin, seconds, by); err != nil {
			return fmt.Errorf("counting by %s over %s: %w", by, r, err)
		}
	}
	return nil
}

// count runs one demo in a new root.
func count(ctx context.Context, r *rdmacore.Release, bin string, seconds int, by string) (err error) {
	dir, err := os.MkdirTemp("", "flowtally-rdma-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	root, err := r.RootIn(dir)
	if err != nil {
		return err
	}
	libraries, err := root.Libraries()
	if err != nil {
		return err
	}
	fmt.Printf("\n%s, by %s\n", r, by)
	for _, l := range libraries {
		fmt.Println("  " + l)
	}
	return root.Demo(ctx, bin, os.Stdout, os.Stderr, "--seconds", strconv.Itoa(seconds), "--rdma-by", by)
}
