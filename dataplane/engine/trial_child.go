package engine

import (
	"encoding/json"
	"io"
	"os"
	"slices"
	"time"

	"github.com/flowtally/flowtally/dataplane/engine/queuepair"
	"github.com/flowtally/flowtally/dataplane/engine/rdma"
	"github.com/flowtally/flowtally/dataplane/engine/trial"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/internal/verbpage"
)

// TrialCommand starts a process that tries an RDMA device before this one uses it: a library that
// crashes or hangs there costs the device, and not the counting. The program's main function must
// call [TrialMain] first; otherwise the trial is the program itself. With the zero value devices
// are used without a trial.
type TrialCommand = trial.Command

// SelfTrial is this very program, for one whose main function calls TrialMain first.
func SelfTrial() TrialCommand {
	return TrialCommand{Path: "/proc/self/exe", Args: []string{os.Args[0], trialWord}}
}

// trialWord is the argument of a trial's process.
const trialWord = "rdma-trial"

// TrialMain runs a trial, if the process was started for one, and returns its exit code. A program that hands
// SelfTrial to an instance calls it before anything else:
//
//	if code, is := engine.TrialMain(); is {
//		os.Exit(code)
//	}
func TrialMain() (code int, is bool) {
	if !slices.Equal(os.Args[1:], []string{trialWord}) {
		return 0, false
	}
	return runTrial(os.Stdin, os.NewFile(3, "verbs")), true
}

// runTrial makes one of each object that the request names and takes it down again. An error of a verb
// does not fail the trial, because the instance meets and reports the same error: a trial fails only
// where the process crashes or hangs.
func runTrial(request io.Reader, page *os.File) (code int) {
	// No other process kills a trial whose parent is gone.
	time.AfterFunc(2*trial.Bound, func() { os.Exit(exitLate) })
	var r trial.Request
	if json.NewDecoder(request).Decode(&r) != nil {
		return exitNoRequest
	}
	calls, _ := verbpage.Open(page) // nil names nothing
	page.Close()
	lib, err := ibv.Load(ibv.Options{Library: r.RDMA.Library, MLX5: r.RDMA.MLX5, EFA: r.RDMA.EFA, Calls: calls})
	if err != nil {
		return 0
	}
	defer lib.Close()
	if r.Device == "" {
		_, _ = lib.Devices()
		return 0
	}
	if r.Flows {
		rdma.TryFlows(lib, r)
	}
	if r.Completions {
		_, _ = queuepair.Sources(lib, r.Device)
	}
	for _, q := range r.QueuePairs {
		queuepair.Try(lib, q)
	}
	return 0
}

// The exit codes of a trial that did not come to its end.
const (
	exitNoRequest = 64
	exitLate      = 65
)
