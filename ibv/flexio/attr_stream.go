package flexio

import "math/bits"

// MsgDevLevel is flexio_msg_dev_level. The reference only names the ends of its range. The numbers come from the SDK's
// public flexio.h.
type MsgDevLevel uint8

// The levels. Each also includes the lower numbers.
const (
	MsgDevNoPrint     MsgDevLevel = 0
	MsgDevAlwaysPrint MsgDevLevel = 1 // for messages, not for streams
	MsgDevError       MsgDevLevel = 2
	MsgDevWarn        MsgDevLevel = 3
	MsgDevInfo        MsgDevLevel = 4
	MsgDevDebug       MsgDevLevel = 5
)

var msgDevLevelNames = map[MsgDevLevel]string{
	MsgDevNoPrint: "FLEXIO_MSG_DEV_NO_PRINT", MsgDevAlwaysPrint: "FLEXIO_MSG_DEV_ALWAYS_PRINT", MsgDevError: "FLEXIO_MSG_DEV_ERROR",
	MsgDevWarn: "FLEXIO_MSG_DEV_WARN", MsgDevInfo: "FLEXIO_MSG_DEV_INFO", MsgDevDebug: "FLEXIO_MSG_DEV_DEBUG",
}

func (l MsgDevLevel) String() string { return name(msgDevLevelNames, "level", l) }

// MsgDevSyncMode is enum flexio_msg_dev_sync_mode, numbered as in the public flexio.h.
type MsgDevSyncMode uint8

// When messages reach the host.
const (
	MsgDevSync   MsgDevSyncMode = 0
	MsgDevAsync  MsgDevSyncMode = 1
	MsgDevBatch  MsgDevSyncMode = 2
	MsgDevTracer MsgDevSyncMode = 3 // send only the arguments, for templates on the host
)

var msgDevSyncNames = map[MsgDevSyncMode]string{MsgDevSync: "sync", MsgDevAsync: "async", MsgDevBatch: "batch", MsgDevTracer: "tracer"}

func (m MsgDevSyncMode) String() string { return name(msgDevSyncNames, "sync mode", m) }

// MsgTransport is enum flexio_msg_transport, numbered as in the public flexio.h.
type MsgTransport uint8

// How messages reach the host.
const (
	MsgTransportQP     MsgTransport = 0
	MsgTransportWindow MsgTransport = 1
)

func (t MsgTransport) String() string {
	return name(map[MsgTransport]string{MsgTransportQP: "QP", MsgTransportWindow: "window"}, "transport", t)
}

// MsgStreamAttr is flexio_msg_stream_attr_t: the attributes of a stream of messages from the DPA to the host.
type MsgStreamAttr struct {
	StreamName       string         `ref:"stream_name"`
	DataBsize        uint64         `ref:"data_bsize"` // bytes, a power of two of at least 2048
	Level            MsgDevLevel    `ref:"level"`
	SyncMode         MsgDevSyncMode `ref:"sync_mode"`
	TransportMode    MsgTransport   `ref:"transport_mode"`
	TracerMode       MsgTransport   `ref:"tracer_mode"`        // old name of TransportMode; do not use
	TracerMsgFormats []string       `ref:"tracer_msg_formats"` // templates by message ID, without the final NULL of C
	MgmtAffinity     Affinity       `ref:"mgmt_affinity"`
	UserCbCtx        HostAddr       `ref:"user_cb_ctx"`
	UAR              *Object        `ref:"uar"` // deprecated and ignored: the SDK uses the process's own
}

// Validate reports every attribute that is wrong.
func (a *MsgStreamAttr) Validate() error {
	c := checks{of: "flexio_msg_stream_attr_t"}
	c.nameFits("stream_name", a.StreamName)
	if a.DataBsize < 2048 || bits.OnesCount64(a.DataBsize) != 1 {
		c.refuse("data_bsize", "%d is not a power of two of at least 2048", a.DataBsize)
	}
	c.known("level", a.Level, a.Level <= MsgDevDebug)
	if a.Level == MsgDevAlwaysPrint {
		c.refuse("level", "%s is of a message, not of a stream", a.Level)
	}
	c.known("sync_mode", a.SyncMode, a.SyncMode <= MsgDevTracer)
	c.known("transport_mode", a.TransportMode, a.TransportMode <= MsgTransportWindow)
	if a.TracerMode != 0 {
		c.refuse("tracer_mode", "is never to be used: set transport_mode")
	}
	if a.SyncMode == MsgDevTracer && len(a.TracerMsgFormats) == 0 {
		c.refuse("tracer_msg_formats", "no templates, and sync_mode is tracer")
	}
	for i, f := range a.TracerMsgFormats {
		if f == "" {
			c.refuse("tracer_msg_formats", "template %d is empty: messages with this ID say nothing", i)
		}
	}
	c.within("mgmt_affinity", a.MgmtAffinity.check)
	return c.err()
}

// TracerMsg is flexio_tracer_msg: the arguments of a template. The reference gives no layout.
type TracerMsg struct {
	Arg0 uint64 `ref:"arg0"`
	Arg1 uint64 `ref:"arg1"`
	Arg2 uint64 `ref:"arg2"`
	Arg3 uint64 `ref:"arg3"`
	Arg4 uint64 `ref:"arg4"`
	Arg5 uint64 `ref:"arg5"`
}

// Args returns the arguments in the order of the template.
func (m *TracerMsg) Args() [6]uint64 {
	return [6]uint64{m.Arg0, m.Arg1, m.Arg2, m.Arg3, m.Arg4, m.Arg5}
}

// msgDevMaxStreams is FLEXIO_MSG_DEV_MAX_STREAMS_AMOUNT of the public flexio.h.
const msgDevMaxStreams = 255

// ProcessTracerCtx is flexio_dev_process_tracer_ctx: the tracers of a process, indexed by stream. The reference does not
// define their content.
type ProcessTracerCtx struct {
	TracerCtx []Object `ref:"tracer_ctx"`
}

// Validate reports more tracers than a process can have streams.
func (p *ProcessTracerCtx) Validate() error {
	c := checks{of: "flexio_dev_process_tracer_ctx"}
	if n := len(p.TracerCtx); n > msgDevMaxStreams {
		c.refuse("tracer_ctx", "%d: a process has at most %d streams", n, msgDevMaxStreams)
	}
	return c.err()
}

// Spinlock is spinlock_s, a lock for threads of the DPA. The host may read it, but must not take it.
type Spinlock struct {
	Locked uint32 `ref:"locked"` // 0 if free
}
