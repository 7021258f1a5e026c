package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/export"
	"github.com/flowtally/flowtally/cmd/internal/selection"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/shm"
)

// exportCmd serves the counters of a mirror to Prometheus and pushes them by OTLP, until a signal.
type exportCmd struct {
	readerFlag
	Listen      string            `help:"Serve /metrics and /v1/counters on this address; ':9790' is every address of the host, '-' none." default:"localhost:9790" placeholder:"ADDR"`
	WebConfig   string            `name:"web.config.file" help:"TLS, users and headers of the server: a web configuration file of Prometheus exporters." placeholder:"PATH"`
	Label       []string          `sep:"none" complete:"labels" help:"Only counters with this label: KEY=VALUE, KEY!=VALUE, KEY=~REGEXP, KEY!~REGEXP, KEY or !KEY, as for flowtally get. May be repeated." placeholder:"KEY=VALUE"`
	Direction   string            `help:"Only flows of this side of the interface: ingress or egress." enum:",ingress,egress" default:"" placeholder:"SIDE"`
	LabelKeys   []string          `complete:"label-keys" help:"Keys of flow labels that become labels of the series." placeholder:"KEY,…"`
	SumBy       []string          `sep:"," complete:"label-keys" help:"Export the sums of the counters that have the same values of these labels, in place of the counters. /v1/counters has the counters all the same." placeholder:"KEY,…"`
	MaxCounters int               `help:"The most counters that are exported; the ones added first are. flowtally_counters_dropped has the number of the others." default:"10000" placeholder:"N"`
	Conditions  bool              `help:"Export the conditions too. They come from the control socket, which needs root or the user of run."`
	Socket      string            `help:"The control socket of --conditions. Empty: as for flowtally flows." env:"FLOWTALLY_SOCKET" placeholder:"PATH"`
	OTLP        string            `name:"otlp" help:"Push to this collector: http://HOST:4318 or https:// for protobuf over HTTP, grpc://HOST:4317 or grpcs:// for gRPC." placeholder:"URL"`
	OTLPPeriod  time.Duration     `name:"otlp-period" help:"Time between two pushes." default:"1m"`
	OTLPHeader  map[string]string `name:"otlp-header" help:"A header of each push, for authentication. May be repeated." env:"OTEL_EXPORTER_OTLP_HEADERS" mapsep:"," placeholder:"KEY=VALUE"`
	Name        []string          `arg:"" optional:"" complete:"counters" help:"Counters to export; patterns as of the shell, such as 'w*', too. Default: all."`
}

// Help is shown by export --help.
func (*exportCmd) Help() string {
	return `Reads the mirror alone, needs no privilege, and follows the mirror over restarts. A counter that was never sampled has no series. /metrics is for Prometheus, /v1/counters is the JSON of "flowtally get". Series have the labels counter and direction, and the labels that --label-keys names.

Examples:

  flowtally export

  flowtally export --listen :9790 --label-keys team,action --web.config.file /etc/flowtally-web.yaml

  flowtally export --instance edge --otlp grpc://collector:4317 --otlp-period 15s 'web*'`
}

func (c *exportCmd) Run(env *Env) error {
	selected, err := newSelection(c.Name, selection.Options{Label: c.Label, Direction: c.Direction, SumBy: c.SumBy})
	if err != nil {
		return err
	}

	o := export.RunOptions{
		Options: export.Options{
			Path:        c.Mirror,
			Instance:    string(c.Instance),
			Reader:      shm.ReaderOptions{Owners: c.Owner},
			Select:      selected.Has,
			LabelKeys:   c.LabelKeys,
			MaxCounters: c.MaxCounters,
			Version:     readVersions().Version,
			Logger:      env.Logger,
		},
		Listen:    c.Listen,
		WebConfig: c.WebConfig,
		Push:      export.PushOptions{Endpoint: c.OTLP, Period: c.OTLPPeriod, Headers: c.OTLPHeader},
		Ready:     func() error { return notifySystemd("READY=1") },
	}

	if selected.Sums() {
		if len(c.LabelKeys) > 0 {
			return &usageError{errors.New("--label-keys with --sum-by: the labels of a sum are the keys of --sum-by")}
		}
		if err := export.ValidateLabelKeys(c.SumBy); err != nil {
			return &usageError{fmt.Errorf("--sum-by: %w", err)}
		}
		o.Group = selected.Group
	}
	if c.Conditions {
		o.Conditions = func(ctx context.Context) ([]dataplane.Condition, error) { return c.conditions(ctx, env.named) }
	}
	if err := o.Validate(); err != nil {
		return &usageError{err}
	}
	return export.Run(env.Context, o)
}

// conditions reads the conditions over the control socket.
func (c *exportCmd) conditions(ctx context.Context, named string) (list []dataplane.Condition, err error) {
	svc, _, err := socketFlag{c.Instance, c.Socket}.dial(ctx, named)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, svc.Close()) }()
	return svc.Conditions(ctx)
}
