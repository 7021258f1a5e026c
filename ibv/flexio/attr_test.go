package flexio

import (
	"errors"
	"math"
	"net"
	"reflect"
	"strings"
	"testing"
)

// Memory and objects for attributes that are right.
var (
	dpaRing  = QMem{MemType: MemTypeDPA, DAddr: 0x1000}
	dpaDBR   = QMem{MemType: MemTypeDPA, DAddr: 0x2008}
	hostRing = QMem{MemType: MemTypeHost, HUMEMOffset: 0x40, UMEMID: 7}
	object   = &Object{ID: 0x123456}
)

// right are attributes that are right, each field at the end of its range in one of
// them where it has a range.
var right = map[string][]any{
	"flexio_affinity": {Affinity{}, Affinity{Type: AffinityGroup, ID: math.MaxUint32}, Affinity{Type: AffinityStrict}},
	"flexio_app_attr": {AppAttr{
		AppName: "app", AppPtr: []byte{1}, AppBsize: 1, SigPtr: []byte{2, 3}, SigBsize: 2, DPAAPIVersion: 1,
		FlexioDevVersions: []uint64{1, 2, 3}, FlexioDevVersionsLenSize: 3,
	}},
	"flexio_app_select_attr": {AppSelectAttr{AppName: "app", IBVCtx: object}, AppSelectAttr{AppName: strings.Repeat("a", 255), HWModelID: 3}},
	"flexio_cmdq_attr":       {CmdQAttr{Workers: 1, BatchSize: 1, State: CmdQRunning}},
	"flexio_cq_attr": {
		CQAttr{
			LogCQDepth: 31, Thread: object, UARID: 1<<24 - 1, UARBaseAddr: 0x7f00, CQECompType: CQECompEnhanced, CQECompFormat: MiniL34HStrIdx,
			CQPeriodMode: CQPeriodFromCQE, CQPeriod: 4095, CQMaxCount: math.MaxUint16, NoArm: true, OverrunIgnore: true, CQRingQMem: dpaRing, CQDBRDAddr: 8,
		},
		CQAttr{ElementType: CQElementEmulatedEQ, EmulatedEQN: math.MaxUint32, CC: true, AlwaysArmed: true, CQRingQMem: hostRing, CQDBRDAddr: 16},
		CQAttr{ElementType: CQElementEQ, EmulatedEQN: 1, CQRingQMem: hostRing, CQDBRDAddr: 16},
		CQAttr{ElementType: CQElementNone, CQRingQMem: dpaRing, CQDBRDAddr: 16},
	},
	"flexio_dev_process_tracer_ctx": {ProcessTracerCtx{TracerCtx: make([]Object, 255)}},
	"flexio_event_handler_attr": {EventHandlerAttr{
		Name: "handler", HostStubFunc: 1, Arg: 2, Affinity: Affinity{Type: AffinityStrict, ID: 9}, Continuable: true, ThreadLocalStorageDAddr: 0x40,
	}},
	"flexio_heap_mem_info": {HeapMemInfo{BaseAddr: 1, Size: math.MaxUint64 - 1, Allocated: 10, Requested: 10}},
	"flexio_mem":           {Mem{MemType: MemTypeDPA, DAddr: 1}, Mem{MemType: MemTypeHost, HAddr: 1}},
	"flexio_mkey_attr":     {MKeyAttr{PD: object, DAddr: 1, Len: math.MaxUint64 - 1, Access: AccessLocalWrite | AccessRemoteWrite}},
	"flexio_msg_stream_attr_t": {MsgStreamAttr{
		StreamName: "stream", DataBsize: 2048, Level: MsgDevDebug, SyncMode: MsgDevTracer, TransportMode: MsgTransportWindow,
		TracerMsgFormats: []string{"%d"}, MgmtAffinity: Affinity{Type: AffinityGroup}, UserCbCtx: 1, UAR: object,
	}, MsgStreamAttr{DataBsize: 1 << 63}},
	"flexio_outbox_attr":  {OutboxAttr{EnPCC: true, UAR: object}},
	"flexio_process_attr": {ProcessAttr{}, ProcessAttr{Name: "process", PD: object, EnPCC: true}},
	"flexio_qmem":         {dpaRing, hostRing},
	"flexio_qp_attr": {
		QPAttr{},
		QPAttr{
			TransportType: QPTransportDCCNAK, PD: object, UARID: 1<<24 - 1, UserIndex: 1<<24 - 1, OpsFlag: -1, LogSQDepth: 15, SQCQN: 1<<24 - 1,
			LogRQDepth: 15, RQCQN: 1<<24 - 1, QPWQBuffQMem: dpaRing, QPWQDBRQMem: dpaDBR, IsolateVLTC: true, NextState: QPStateRTS, QPAccessMask: 0xf,
			VHCAPortNum: 255, RemoteQPNum: 1<<24 - 1, PathMTU: QPMTU4K, GIDTableIndex: 255, GRH: true, FL: true, DestMAC: net.HardwareAddr{1, 2, 3, 4, 5, 6},
			RGIDOrRIP: [16]byte{1}, RLID: 1, UDPSport: 1, QKey: 1, NextSendPSN: 1<<24 - 1, NextRcvPSN: 1<<24 - 1, MinRNRNAKTimer: 31, RetryCount: 7,
			LogRRAMax: 7, LogSRAMax: 7,
		},
		QPAttr{PD: object, NoSQ: true, RQType: RQRMP, RMPQN: 1<<24 - 1},
		QPAttr{PD: object, NoSQ: true, RQType: RQZero},
	},
	"flexio_qp_attr_opt_param_mask": {QPAttrOptParamMask{MinRNRNAKTimer: true, QPAccessMask: true}},
	"flexio_tracer_msg":             {TracerMsg{1, 2, 3, 4, 5, 6}},
	"flexio_wq_attr": {
		WQAttr{
			LogWQDepth: 31, LogWQStride: 15, PD: object, UARID: 1<<24 - 1, UserIndex: 1<<24 - 1, WQRingQMem: dpaRing, WQDBRQMem: dpaDBR,
			RQ: WQRQAttr{WQType: WQCyclic, EndPadMode: WQEndPadAlign, VLANStripDisable: true, TD: object},
		},
		WQAttr{PD: object, WQRingQMem: hostRing, WQDBRQMem: QMem{MemType: MemTypeHost, HUMEMOffset: 8}, SQ: WQSQAttr{AllowMultiPktSendWQE: true, TIS: object}},
	},
	"flexio_wq_rq_attr": {WQRQAttr{WQType: WQCyclic, EndPadMode: WQEndPadAlign, VLANStripDisable: true, TD: object}},
	"flexio_wq_sq_attr": {WQSQAttr{AllowMultiPktSendWQE: true, TIS: object}},
	"spinlock_s":        {Spinlock{Locked: 1}},
}

// validate checks attributes as the function that takes them would.
func validate(v any) error {
	switch a := v.(type) {
	case Affinity:
		return a.Validate()
	case AppAttr:
		return a.Validate()
	case AppSelectAttr:
		return a.Validate()
	case CmdQAttr:
		return a.Validate()
	case CQAttr:
		return a.Validate()
	case ProcessTracerCtx:
		return a.Validate()
	case EventHandlerAttr:
		return a.Validate()
	case HeapMemInfo:
		return a.Validate()
	case Mem:
		return a.Validate()
	case MKeyAttr:
		return a.Validate()
	case MsgStreamAttr:
		return a.Validate()
	case ProcessAttr:
		return a.Validate()
	case QMem:
		return a.Validate()
	case QPAttr:
		if a.PD == nil { // of a modification
			return a.Validate()
		}
		return a.ValidateCreate()
	case WQAttr:
		if a.SQ != (WQSQAttr{}) {
			return a.ValidateSQ()
		}
		return a.ValidateRQ()
	}
	return nil // every value is valid
}

// neverSet are fields that no right attributes set.
var neverSet = map[string]bool{"flexio_msg_stream_attr_t.tracer_mode": true}

// Together the examples set every field of every attribute structure.
func TestValidAttributesAreAccepted(t *testing.T) {
	for strct, typ := range goTypes {
		if binarySize(typ) > 0 || typ == reflect.TypeFor[SQESeg]() {
			continue
		}
		set := make(map[string]bool)
		for i, v := range right[strct] {
			if err := validate(v); err != nil {
				t.Errorf("%s, example %d: %v", strct, i, err)
			}
			for _, sf := range reflect.VisibleFields(typ) {
				if !reflect.ValueOf(v).FieldByIndex(sf.Index).IsZero() {
					set[sf.Tag.Get("ref")] = true
				}
			}
		}
		for _, sf := range reflect.VisibleFields(typ) {
			ref := sf.Tag.Get("ref")
			if !set[ref] && !neverSet[strct+"."+ref] {
				t.Errorf("%s.%s: no example sets it", strct, ref)
			}
		}
	}
}

// broken changes an example that is right into one that is wrong in one field.
func broken[T any](example int, change func(*T)) func() any {
	return func() any {
		for _, examples := range right {
			if _, ok := examples[0].(T); ok {
				v := examples[example].(T)
				change(&v)
				return v
			}
		}
		panic("no example")
	}
}

// rule is an example that breaks a rule of the field.
type rule struct {
	field string // of the structure, in the words of the reference
	value func() any
	says  string // a part of the reason
}

func TestEachBrokenRuleIsReportedAlone(t *testing.T) {
	for _, r := range append(rules, queueRules...) {
		t.Run(r.field+": "+r.says, func(t *testing.T) {
			err := validate(r.value())
			var attr *AttrError
			if !errors.As(err, &attr) || !errors.Is(err, ErrAttr) {
				t.Fatalf("got %v", err)
			}
			if joined, ok := err.(interface{ Unwrap() []error }); !ok || len(joined.Unwrap()) != 1 {
				t.Errorf("%d things are wrong: %v", len(joined.Unwrap()), err)
			}
			if got := attr.Struct + "." + attr.Field; got != r.field {
				t.Errorf("names %s", got)
			}
			if !strings.Contains(err.Error(), r.says) {
				t.Errorf("says %q", err)
			}
		})
	}
}

func TestValidateReportsEveryInvalidAttribute(t *testing.T) {
	a := CQAttr{LogCQDepth: 32, CQPeriod: 4096, ElementType: CQElementNone, CQRingQMem: dpaRing, CQDBRDAddr: 8}
	err := a.Validate()
	for _, want := range []string{"flexio_cq_attr.log_cq_depth: 32 does not fit", "flexio_cq_attr.cq_period: 4096 does not fit"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}

// Values outside an enumeration must have no name.
func TestEveryEnumerationValueHasAName(t *testing.T) {
	for _, tt := range []struct {
		got, want string
	}{
		{CQElementEmulatedEQ.String(), "emulated EQ"}, {CQElementType(1).String(), "element type 1"},
		{CQECompEnhanced.String(), "enhanced"}, {MiniL34HStrIdx.String(), "L34H_STRIDX"}, {CQPeriodFromCQE.String(), "CQE"},
		{QPTransportDCCNAK.String(), "DC_CNAK"}, {QPState(6).String(), "state 6"}, {QPMTU4K.String(), "4096"}, {RQZero.String(), "zero-RQ"},
		{MemTypeHost.String(), "FLEXIO_MEMTYPE_HOST"}, {AffinityGroup.String(), "group"}, {CmdQRunning.String(), "running"},
		{MsgDevAlwaysPrint.String(), "FLEXIO_MSG_DEV_ALWAYS_PRINT"}, {MsgDevTracer.String(), "tracer"}, {MsgTransportWindow.String(), "window"},
		{WQCyclic.String(), "cyclic"}, {WQEndPadAlign.String(), "align"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}

// Stride, Args, Compression and the checks of one function alone are not ranges of a field, so the
// tables above do not cover them.
func TestAttributeHelpersFollowTheReference(t *testing.T) {
	if got := (&WQAttr{}).Stride(); got != 16 {
		t.Errorf("a stride that is not given is %d bytes, want 2^4", got)
	}
	if got := (&WQAttr{LogWQStride: 6}).Stride(); got != 64 {
		t.Errorf("stride %d, want 64", got)
	}
	if got := (&TracerMsg{1, 2, 3, 4, 5, 6}).Args(); got != [6]uint64{1, 2, 3, 4, 5, 6} {
		t.Errorf("arguments %v", got)
	}
	for typ, want := range map[CQECompType]Compression{CQECompNone: Uncompressed, CQECompBasic: Basic, CQECompEnhanced: Enhanced} {
		if got := typ.Compression(); got != want {
			t.Errorf("a ring of compression %s is walked as %d, want %d", typ, got, want)
		}
	}
	// The two rules that depend on the function that takes the attributes.
	qp := right["flexio_qp_attr"][1].(QPAttr)
	qp.PD = nil
	rq := right["flexio_wq_attr"][0].(WQAttr)
	rq.SQ.TIS = object
	for field, err := range map[string]error{"flexio_qp_attr.pd": qp.ValidateCreate(), "flexio_wq_attr.sq": rq.ValidateRQ()} {
		var attr *AttrError
		if !errors.As(err, &attr) || attr.Struct+"."+attr.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
	if err := qp.Validate(); err != nil {
		t.Errorf("a modification needs no protection domain: %v", err)
	}
	collapsed := CQAttr{ElementType: CQElementNone, CC: true, OverrunIgnore: true, CQRingQMem: dpaRing, CQDBRDAddr: 8}
	if err := collapsed.ValidateCollapsed(); err != nil {
		t.Error(err)
	}
	for field, change := range map[string]func(*CQAttr){
		"cc":             func(a *CQAttr) { a.CC = false },
		"overrun_ignore": func(a *CQAttr) { a.OverrunIgnore = false },
		"log_cq_depth":   func(a *CQAttr) { a.LogCQDepth = 32 }, // Validate refuses it
	} {
		a := collapsed
		change(&a)
		var attr *AttrError
		if err := a.ValidateCollapsed(); !errors.As(err, &attr) || attr.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
}
