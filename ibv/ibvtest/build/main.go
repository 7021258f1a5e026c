// Command build compiles the uverbs kernel in software and the shim of package ibvtest
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
	for _, p := range []string{libs.Kernel, libs.Server, libs.Shim, libs.Shim61} {
		fmt.Println(p)
	}
}
