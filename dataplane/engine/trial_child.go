package engine

import (
	"os"
	"slices"

	"github.com/flowtally/flowtally/dataplane/engine/trial"
	"github.com/flowtally/flowtally/dataplane/engine/trial/child"
	"github.com/flowtally/flowtally/internal/hosted"
)

// TrialCommand starts a process that tries an RDMA device before this one uses it: a library that
// crashes or hangs there costs the device, and not the counting. The program's main function must
// call [TrialMain] first; otherwise the trial is the program itself. With the zero value devices
// are used without a trial.
type TrialCommand = trial.Command

// SelfTrial is this very program, for one whose main function calls TrialMain first.
func SelfTrial() TrialCommand {
	return TrialCommand{Path: "/proc/self/exe", Args: []string{os.Args[0], hosted.TrialWord}}
}

// TrialMain runs a trial, or removes what a dead plugin has left attached, if the process was started for that, and
// returns its exit code. The main function of a plugin, or of a program that calls New, calls it before anything else:
//
//	if code, is := engine.TrialMain(); is {
//		os.Exit(code)
//	}
func TrialMain() (code int, is bool) {
	if len(os.Args) == 3 && os.Args[1] == hosted.ReleaseWord {
		return releaseMain(os.Args[2]), true
	}
	if !slices.Equal(os.Args[1:], []string{hosted.TrialWord}) {
		return 0, false
	}
	return child.Main(os.Stdin, os.NewFile(3, "verbs"), os.NewFile(4, "reply")), true
}
