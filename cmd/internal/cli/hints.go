package cli

import (
	"errors"
	"os"

	"github.com/flowtally/flowtally/cmd/internal/export"
	"github.com/flowtally/flowtally/cmd/internal/usage"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/plugin"
	"github.com/flowtally/flowtally/probe"
	"github.com/flowtally/flowtally/shm"
)

// hints has the next step for each sentinel. The first match is shown, so a specific sentinel must come before a general
// one that it wraps.
var hints = []struct {
	is  error
	try string
}{
	{plugin.ErrUntrusted, "--plugin PATH names a binary that only root can write"},
	{plugin.ErrLeft, "flowtally instances # then: flowtally clean --instance NAME"},
	{plugin.ErrIncompatible, "flowtally version # flowtally and its plugin are of one release"},
	{plugin.ErrStart, "flowtally doctor # and the log above with --log.level debug"},
	{shm.ErrInUse, "another --instance, or stop the one that runs"},
	{shm.ErrPermission, "flowtally doctor # names the fault of the directory; or another --mirror PATH"},
	{shm.ErrFormat, "check the path; is it a .mirror file of this version? flowtally version"},
	{shm.ErrNotReady, "again in a moment"},
	{shm.ErrTruncated, "flowtally check # names the fault; move the file away and start flowtally run again"},
	{shm.ErrNotFound, "flowtally get # lists all counters"},
	{shm.ErrFull, "flowtally doctor # shows the room that is left; mirror.counters and mirror.latency_counters are limits"},
	{shm.ErrBusy, "again in a moment"},
	{shm.ErrNotAlive, "flowtally run --config FILE # goes on with the totals; flowtally get shows the last values"},
	{shm.ErrGone, "flowtally get # lists all counters"},
	{export.ErrWebConfig, "correct the file or the path; its parts are tls_server_config, http_server_config and basic_auth_users, and its paths begin at its directory"},
	{export.ErrListen, "--listen with another address; ss -ltnp names the program that has this one"},
	{dataplane.ErrPermission, "SUDO # or give the process the capability (AmbientCapabilities= in its systemd unit)"},
	{dataplane.ErrInUse, "another --instance, or stop the one that runs"},
	{dataplane.ErrFull, "flowtally doctor # shows the room that is left; mirror.counters, mirror.latency_counters and xdp.max_flows are limits"},
	{dataplane.ErrCostly, "flowtally check --config FILE # prints the cost; narrow the named flows by an address prefix or a port, or remove some; or allow more by xdp.worst_cost"},
	{dataplane.ErrDense, "flowtally check --config FILE # names flows that count nothing: remove these; or narrow the flows that match the same packets, such as by an address"},
	{dataplane.ErrIncompatible, "flowtally clean --instance NAME # gives up their counts; the release that made them takes its hooks again when it is started"},
	{dataplane.ErrRestart, "stop flowtally run and start it again (systemctl restart flowtally); totals go on"},
	{dataplane.ErrUnplaced, "flowtally doctor # tests each backend here"},
	{dataplane.ErrExists, "another name, or: flowtally flows remove NAME"},
	{dataplane.ErrNotFound, "flowtally flows list"},
	{dataplane.ErrNotConnected, "flowtally queue-pairs list # then: flowtally queue-pairs connect NAME [ADDRESS]"},
	{dataplane.ErrUnavailable, "again in a moment; if it stays so, look at the log of flowtally run"},
	{dataplane.ErrClosed, "start it again: flowtally run --config FILE"},
	{probe.ErrNotSupported, "flowtally doctor # tests each backend here"},
	{os.ErrPermission, "SUDO # or as a member of the file's group"},
}

// hint returns the next step to show with err, or "". A step chosen where the error arose beats the table.
func hint(err error) string {
	var own *hintedError
	if errors.As(err, &own) {
		return own.try
	}
	var unsupported *probe.UnsupportedError
	if errors.As(err, &unsupported) && unsupported.Fix != "" {
		return unsupported.Fix
	}
	if step := (interface{ NextStep() string })(nil); errors.As(err, &step) && step.NextStep() != "" {
		return step.NextStep()
	}
	var mistake *usage.Error
	if errors.As(err, &mistake) {
		return mistake.Try
	}
	if try := usage.Hint(err); try != "" {
		return try
	}
	for _, h := range hints {
		if errors.Is(err, h.is) {
			return h.try
		}
	}
	return ""
}
