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

// Main runs the trial or the probe of a request, writes the reply, and returns the exit code.
//
// A trial makes one of each requested object and destroys it again. Errors of verbs do not fail it, because the
// instance will meet and report the same errors. It fails if the process crashes or hangs, or if the library returns
// something that no working library returns: then the reply names the reason.
func Main(request io.Reader, page *os.File, reply io.Writer) (code int) {
	// If the parent is gone, nobody else will end a trial that hangs.
	time.AfterFunc(trial.Longest+trial.Bound, func() { os.Exit(exitLate) })

	var r trial.Request
	if json.NewDecoder(request).Decode(&r) != nil {
		return exitNoRequest
	}

	calls, _ := verbpage.Open(page) // on error calls is nil, and verbs go unnamed
	page.Close()

	if r.Probe != "" {
		_ = json.NewEncoder(reply).Encode(Probe(r, calls)) // the parent notices a reply cut short
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
	return ibv.Load(ibv.Options{
		Library: r.RDMA.Library,
		MLX5:    r.RDMA.MLX5,
		EFA:     r.RDMA.EFA,
		Calls:   calls,
	})
}

// The exit codes of a trial that did nothing, or not everything.
const (
	exitNoRequest = 64
	exitLate      = 65
)
