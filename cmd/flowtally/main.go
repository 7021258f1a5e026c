// Command flowtally counts network flows and reads the counts.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/flowtally/flowtally/cmd/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Main(ctx, os.Stdin, os.Stdout, os.Stderr, os.Args[1:])
	stop()
	os.Exit(code)
}
