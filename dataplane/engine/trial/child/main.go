package child

import (
	"encoding/json"
	"io"
	"os"
	"time"

	"github.com/flowtally/flowtally/dataplane/engine/queuepair"
	"github.com/flowtally/flowtally/dataplane/engine/rdma"
	"github.com/flowtally/flowtally/dataplane/engine/trial"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/internal/verbpage"
)

// Main makes one of each object that the request names and takes it down again, or runs the probe that the request
// names and writes the reply. It returns the exit code. An error of a verb does not fail the trial, because the
// instance meets and reports the same error. A trial fails where the process crashes or hangs, or where the library
// returns a value that no library returns: the reply has the reason then.
func Main(request io.Reader, page *os.File, reply io.Writer) (code int) {
	// No other process kills a trial whose parent is gone.
	time.AfterFunc(2*trial.Bound, func() { os.Exit(exitLate) })
	var r trial.Request
	if json.NewDecoder(request).Decode(&r) != nil {
		return exitNoRequest
	}
	calls, _ := verbpage.Open(page) // nil names nothing
	page.Close()
	if r.Probe != "" {
		_ = json.NewEncoder(reply).Encode(Probe(r, calls)) // the parent cannot decode a part of a reply
		return 0
	}
	lib, err := load(r, calls)
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
	if err := queuepair.Try(lib, r.QueuePairs); err != nil {
		_ = json.NewEncoder(reply).Encode(trial.Reply{Refused: err.Error()})
	}
	return 0
}

func load(r trial.Request, calls ibv.Calls) (*ibv.Library, error) {
	return ibv.Load(ibv.Options{Library: r.RDMA.Library, MLX5: r.RDMA.MLX5, EFA: r.RDMA.EFA, Calls: calls})
}

// The exit codes of a trial that did not come to its end.
const (
	exitNoRequest = 64
	exitLate      = 65
)
