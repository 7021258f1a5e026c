// Command build compiles the software libibverbs.so.1 and libmlx5.so.1 of package ibvtest
// into a directory: go run ./ibv/ibvtest/build DIR.
package main

import (
	"fmt"
	"os"

	"github.com/flowtally/flowtally/ibv/ibvtest"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: build DIR")
		os.Exit(2)
	}
	libs, err := ibvtest.Build(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, p := range []string{libs.Verbs, libs.Verbs44, libs.MLX5} {
		fmt.Println(p)
	}
}
