package bench

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
)

// floorWord is the first argument of a program that runs as a floor. The floor's name follows, and then its own
// arguments.
const floorWord = "run-as-floor"

// Floor is a program to compare another process with. It runs until it is killed, or until its standard input ends.
type Floor func(args []string) error

// FloorCommand returns the command that runs this program again, as the floor of that name. The program must begin with
// FloorMain.
func FloorCommand(name string, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program, to start it as a floor: %w", err)
	}
	return exec.Command(self, slices.Concat([]string{floorWord, name}, args)...), nil
}

// FloorMain runs the floor that FloorCommand has started this process for, and returns its exit code. In any other process
// started is false.
func FloorMain(floors map[string]Floor) (code int, started bool) {
	if len(os.Args) < 3 || os.Args[1] != floorWord {
		return 0, false
	}
	floor := floors[os.Args[2]]
	if floor == nil {
		fmt.Fprintf(os.Stderr, "running the floor %q: no such floor\n", os.Args[2])
		return 2, true
	}
	if err := floor(os.Args[3:]); err != nil {
		fmt.Fprintf(os.Stderr, "running the floor %q: %v\n", os.Args[2], err)
		return 1, true
	}
	return 0, true
}
