package ibv

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// cNames maps each of our constants to its name in C.
const cNames = `
AccessLocalWrite IBV_ACCESS_LOCAL_WRITE
AccessRemoteWrite IBV_ACCESS_REMOTE_WRITE
AccessRemoteRead IBV_ACCESS_REMOTE_READ
AccessRemoteAtomic IBV_ACCESS_REMOTE_ATOMIC

CounterPackets IBV_COUNTER_PACKETS
CounterBytes IBV_COUNTER_BYTES
ReadCountersPreferCached IBV_READ_COUNTERS_ATTR_PREFER_CACHED

DeviceRawIPCsum IBV_DEVICE_RAW_IP_CSUM
DeviceManagedFlowSteering IBV_DEVICE_MANAGED_FLOW_STEERING

EventCQErr IBV_EVENT_CQ_ERR
EventQPFatal IBV_EVENT_QP_FATAL
EventQPReqErr IBV_EVENT_QP_REQ_ERR
EventQPAccessErr IBV_EVENT_QP_ACCESS_ERR
EventCommEst IBV_EVENT_COMM_EST
EventSQDrained IBV_EVENT_SQ_DRAINED
EventPathMig IBV_EVENT_PATH_MIG
EventPathMigErr IBV_EVENT_PATH_MIG_ERR
EventDeviceFatal IBV_EVENT_DEVICE_FATAL
EventPortActive IBV_EVENT_PORT_ACTIVE
EventPortErr IBV_EVENT_PORT_ERR
EventLIDChange IBV_EVENT_LID_CHANGE
EventPKeyChange IBV_EVENT_PKEY_CHANGE
EventSMChange IBV_EVENT_SM_CHANGE
EventSRQErr IBV_EVENT_SRQ_ERR
EventSRQLimitReached IBV_EVENT_SRQ_LIMIT_REACHED
EventQPLastWQEReached IBV_EVENT_QP_LAST_WQE_REACHED
EventClientReregister IBV_EVENT_CLIENT_REREGISTER
EventGIDChange IBV_EVENT_GID_CHANGE
EventWQFatal IBV_EVENT_WQ_FATAL

FlowAttrNormal IBV_FLOW_ATTR_NORMAL
FlowAttrAllDefault IBV_FLOW_ATTR_ALL_DEFAULT
FlowAttrMCDefault IBV_FLOW_ATTR_MC_DEFAULT
FlowAttrSniffer IBV_FLOW_ATTR_SNIFFER
FlowDontTrap IBV_FLOW_ATTR_FLAGS_DONT_TRAP
FlowEgress IBV_FLOW_ATTR_FLAGS_EGRESS

LinkLayerUnspecified IBV_LINK_LAYER_UNSPECIFIED
LinkLayerInfiniBand IBV_LINK_LAYER_INFINIBAND
LinkLayerEthernet IBV_LINK_LAYER_ETHERNET

MTU256 IBV_MTU_256
MTU512 IBV_MTU_512
MTU1024 IBV_MTU_1024
MTU2048 IBV_MTU_2048
MTU4096 IBV_MTU_4096

MigMigrated IBV_MIG_MIGRATED
MigRearm IBV_MIG_REARM
MigArmed IBV_MIG_ARMED

NodeUnknown IBV_NODE_UNKNOWN
NodeCA IBV_NODE_CA
NodeSwitch IBV_NODE_SWITCH
NodeRouter IBV_NODE_ROUTER
NodeRNIC IBV_NODE_RNIC
NodeUSNIC IBV_NODE_USNIC
NodeUSNICUDP IBV_NODE_USNIC_UDP
NodeUnspecified IBV_NODE_UNSPECIFIED

PortNop IBV_PORT_NOP
PortDown IBV_PORT_DOWN
PortInit IBV_PORT_INIT
PortArmed IBV_PORT_ARMED
PortActive IBV_PORT_ACTIVE
PortActiveDefer IBV_PORT_ACTIVE_DEFER

QPAttrState IBV_QP_STATE
QPAttrCurState IBV_QP_CUR_STATE
QPAttrEnSQDAsyncNotify IBV_QP_EN_SQD_ASYNC_NOTIFY
QPAttrAccessFlags IBV_QP_ACCESS_FLAGS
QPAttrPKeyIndex IBV_QP_PKEY_INDEX
QPAttrPort IBV_QP_PORT
QPAttrQKey IBV_QP_QKEY
QPAttrAV IBV_QP_AV
QPAttrPathMTU IBV_QP_PATH_MTU
QPAttrTimeout IBV_QP_TIMEOUT
QPAttrRetryCnt IBV_QP_RETRY_CNT
QPAttrRNRRetry IBV_QP_RNR_RETRY
QPAttrRQPSN IBV_QP_RQ_PSN
QPAttrMaxQPRdAtomic IBV_QP_MAX_QP_RD_ATOMIC
QPAttrAltPath IBV_QP_ALT_PATH
QPAttrMinRNRTimer IBV_QP_MIN_RNR_TIMER
QPAttrSQPSN IBV_QP_SQ_PSN
QPAttrMaxDestRdAtomic IBV_QP_MAX_DEST_RD_ATOMIC
QPAttrPathMigState IBV_QP_PATH_MIG_STATE
QPAttrCap IBV_QP_CAP
QPAttrDestQPN IBV_QP_DEST_QPN
QPAttrRateLimit IBV_QP_RATE_LIMIT

QPSReset IBV_QPS_RESET
QPSInit IBV_QPS_INIT
QPSRTR IBV_QPS_RTR
QPSRTS IBV_QPS_RTS
QPSSQD IBV_QPS_SQD
QPSSQE IBV_QPS_SQE
QPSErr IBV_QPS_ERR
QPSUnknown IBV_QPS_UNKNOWN

QPAttachCompCntrOpSend IBV_QP_ATTACH_COMP_CNTR_OP_SEND
QPAttachCompCntrOpRecv IBV_QP_ATTACH_COMP_CNTR_OP_RECV
QPAttachCompCntrOpRDMARead IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ
QPAttachCompCntrOpRemoteRDMARead IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ
QPAttachCompCntrOpRDMAWrite IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE
QPAttachCompCntrOpRemoteRDMAWrite IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE
CompCntrAttachOpSend IBV_COMP_CNTR_ATTACH_OP_SEND
CompCntrAttachOpRecv IBV_COMP_CNTR_ATTACH_OP_RECV
CompCntrAttachOpRDMARead IBV_COMP_CNTR_ATTACH_OP_RDMA_READ
CompCntrAttachOpRemoteRDMARead IBV_COMP_CNTR_ATTACH_OP_REMOTE_RDMA_READ
CompCntrAttachOpRDMAWrite IBV_COMP_CNTR_ATTACH_OP_RDMA_WRITE
CompCntrAttachOpRemoteRDMAWrite IBV_COMP_CNTR_ATTACH_OP_REMOTE_RDMA_WRITE
CompCntrTypeWRs IBV_COMP_CNTR_TYPE_WRS
CompCntrTypeBytes IBV_COMP_CNTR_TYPE_BYTES

QPTRC IBV_QPT_RC
QPTUD IBV_QPT_UD
QPTRawPacket IBV_QPT_RAW_PACKET
QPTSRD IBV_QPT_DRIVER

TransportUnknown IBV_TRANSPORT_UNKNOWN
TransportIB IBV_TRANSPORT_IB
TransportIWARP IBV_TRANSPORT_IWARP
TransportUSNIC IBV_TRANSPORT_USNIC
TransportUSNICUDP IBV_TRANSPORT_USNIC_UDP
TransportUnspecified IBV_TRANSPORT_UNSPECIFIED

WRRDMAWrite IBV_WR_RDMA_WRITE
WRRDMAWriteWithImm IBV_WR_RDMA_WRITE_WITH_IMM
WRSend IBV_WR_SEND
WRSendWithImm IBV_WR_SEND_WITH_IMM
WRRDMARead IBV_WR_RDMA_READ
SendFence IBV_SEND_FENCE
SendSignaled IBV_SEND_SIGNALED
SendSolicited IBV_SEND_SOLICITED
SendInline IBV_SEND_INLINE

WCSend IBV_WC_SEND
WCRDMAWrite IBV_WC_RDMA_WRITE
WCRDMARead IBV_WC_RDMA_READ
WCCompSwap IBV_WC_COMP_SWAP
WCFetchAdd IBV_WC_FETCH_ADD
WCBindMW IBV_WC_BIND_MW
WCLocalInv IBV_WC_LOCAL_INV
WCTSO IBV_WC_TSO
WCRecv IBV_WC_RECV
WCRecvRDMAWithImm IBV_WC_RECV_RDMA_WITH_IMM

specEth IBV_FLOW_SPEC_ETH
specIPv4 IBV_FLOW_SPEC_IPV4
specIPv6 IBV_FLOW_SPEC_IPV6
specIPv4Ext IBV_FLOW_SPEC_IPV4_EXT
specESP IBV_FLOW_SPEC_ESP
specTCP IBV_FLOW_SPEC_TCP
specUDP IBV_FLOW_SPEC_UDP
specVXLANTunnel IBV_FLOW_SPEC_VXLAN_TUNNEL
specGRE IBV_FLOW_SPEC_GRE
specMPLS IBV_FLOW_SPEC_MPLS
specInner IBV_FLOW_SPEC_INNER
specActionTag IBV_FLOW_SPEC_ACTION_TAG
specActionDrop IBV_FLOW_SPEC_ACTION_DROP
specActionCount IBV_FLOW_SPEC_ACTION_COUNT

WCSuccess IBV_WC_SUCCESS
WCLocLenErr IBV_WC_LOC_LEN_ERR
WCLocQPOpErr IBV_WC_LOC_QP_OP_ERR
WCLocEECOpErr IBV_WC_LOC_EEC_OP_ERR
WCLocProtErr IBV_WC_LOC_PROT_ERR
WCWRFlushErr IBV_WC_WR_FLUSH_ERR
WCMWBindErr IBV_WC_MW_BIND_ERR
WCBadRespErr IBV_WC_BAD_RESP_ERR
WCLocAccessErr IBV_WC_LOC_ACCESS_ERR
WCRemInvReqErr IBV_WC_REM_INV_REQ_ERR
WCRemAccessErr IBV_WC_REM_ACCESS_ERR
WCRemOpErr IBV_WC_REM_OP_ERR
WCRetryExcErr IBV_WC_RETRY_EXC_ERR
WCRNRRetryExcErr IBV_WC_RNR_RETRY_EXC_ERR
WCLocRDDViolErr IBV_WC_LOC_RDD_VIOL_ERR
WCRemInvRDReqErr IBV_WC_REM_INV_RD_REQ_ERR
WCRemAbortErr IBV_WC_REM_ABORT_ERR
WCInvEECNErr IBV_WC_INV_EECN_ERR
WCInvEECStateErr IBV_WC_INV_EEC_STATE_ERR
WCFatalErr IBV_WC_FATAL_ERR
WCRespTimeoutErr IBV_WC_RESP_TIMEOUT_ERR
WCGeneralErr IBV_WC_GENERAL_ERR
WCTMErr IBV_WC_TM_ERR
WCTMRndvIncomplete IBV_WC_TM_RNDV_INCOMPLETE

MLX5CompressHash MLX5DV_CQE_RES_FORMAT_HASH
MLX5CompressCsum MLX5DV_CQE_RES_FORMAT_CSUM
MLX5CompressCsumStrIdx MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX
`

// constants evaluates the constants that have a named type of this package. These are the values
// exchanged with C.
func constants(t *testing.T) map[string]int64 {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	var parsed []*ast.File
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(f, "_test.go") || strings.Contains(string(src), `import "C"`) {
			continue
		}
		file, err := parser.ParseFile(fset, f, src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, file)
	}
	// Constants need no imports, so errors about missing imports are ignored.
	conf := types.Config{Error: func(error) {}}
	pkg, _ := conf.Check("ibv", fset, parsed, nil)
	list := make(map[string]int64)
	for _, name := range pkg.Scope().Names() {
		c, ok := pkg.Scope().Lookup(name).(*types.Const)
		if !ok {
			continue
		}
		if named, ok := c.Type().(*types.Named); ok && named.Obj().Pkg() == pkg {
			v, _ := constant.Int64Val(c.Val())
			list[name] = v
		}
	}
	return list
}

// ownTypes are the types of constants without a counterpart in C.
var ownTypes = regexp.MustCompile(`^prm(Encode|Decode|List)$|^word(Comp|Err)$`)

// newerNames are names that rdma-core 44's headers do not have, with their values in rdma-core 65
// (libibverbs/verbs.h:2120-2143). The names from reference 003 are in no release.
var newerNames = map[string]int64{
	"IBV_QP_ATTACH_COMP_CNTR_OP_SEND":              1 << 0,
	"IBV_QP_ATTACH_COMP_CNTR_OP_RECV":              1 << 1,
	"IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ":         1 << 2,
	"IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ":  1 << 3,
	"IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE":        1 << 4,
	"IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE": 1 << 5,
	"IBV_COMP_CNTR_ATTACH_OP_SEND":                 1 << 0,
	"IBV_COMP_CNTR_ATTACH_OP_RECV":                 1 << 1,
	"IBV_COMP_CNTR_ATTACH_OP_RDMA_READ":            1 << 2,
	"IBV_COMP_CNTR_ATTACH_OP_REMOTE_RDMA_READ":     1 << 3,
	"IBV_COMP_CNTR_ATTACH_OP_RDMA_WRITE":           1 << 4,
	"IBV_COMP_CNTR_ATTACH_OP_REMOTE_RDMA_WRITE":    1 << 5,
	"IBV_COMP_CNTR_TYPE_WRS":                       0,
	"IBV_COMP_CNTR_TYPE_BYTES":                     1,
	"MLX5DV_FLOW_ACTION_COUNTERS_DEVX_WITH_OFFSET": 8,      // rdma-core 60
	"EFADV_DEVICE_ATTR_CAPS_RDMA_WRITE":            1 << 3, // rdma-core 46
	"EFADV_MEMORY_LOCATION_VA":                     0,
	"EFADV_COMP_CNTR_INIT_WITH_COMP_EXTERNAL_MEM":  1 << 0,
	"EFADV_COMP_CNTR_INIT_WITH_ERR_EXTERNAL_MEM":   1 << 1,
}

// theirValues are the values of names in the distribution's headers, and of those that
// are newer than they are.
func (cc abiTarget) theirValues(t *testing.T, names []string) []int64 {
	t.Helper()
	var known, newer []string
	for _, n := range names {
		if _, ok := newerNames[n]; ok {
			newer = append(newer, n)
		} else {
			known = append(known, n)
		}
	}
	values := maps.Clone(newerNames)
	for n, missing := range cc.missing(t, theirHeaders, newer) {
		if !missing {
			known = append(known, n)
		}
	}
	for i, v := range cc.values(t, theirHeaders, known) {
		values[known[i]] = v
	}
	list := make([]int64, len(names))
	for i, n := range names {
		list[i] = values[n]
	}
	return list
}

// Every constant that crosses into C is compared.
func TestABIConstantsEqualTheHeaders(t *testing.T) {
	values := constants(t)
	var ours, theirs []string
	for line := range strings.Lines(cNames) {
		if f := strings.Fields(line); len(f) == 2 {
			ours, theirs = append(ours, f[0]), append(theirs, f[1])
		}
	}
	listed := make(map[string]bool)
	for _, name := range ours {
		if _, ok := values[name]; !ok {
			t.Errorf("there is no constant %s", name)
		}
		listed[name] = true
	}
	for name := range values {
		if !listed[name] && !ownTypes.MatchString(name) {
			t.Errorf("constant %s is not compared with C: add it to cNames", name)
		}
	}
	if len(ours) < 100 {
		t.Fatalf("only %d constants were found", len(ours))
	}
	eachTarget(t, func(t *testing.T, cc abiTarget) {
		for i, want := range cc.theirValues(t, theirs) {
			if got := values[ours[i]]; got != want {
				t.Errorf("%s is %d, %s is %d", ours[i], got, theirs[i], want)
			}
		}
	})
}

// define matches a #define in our header. The distribution's header has an enum instead.
var define = regexp.MustCompile(`(?m)^#define (\w+) (\d+)`)

// These numbers are used by our C code alone, so no Go constant would show a difference.
func TestABIDefinesEqualTheHeaders(t *testing.T) {
	var names []string
	for _, file := range []string{"mlx5_abi.h", "efa_abi.h"} {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range define.FindAllStringSubmatch(string(src), -1) {
			names = append(names, m[1])
		}
	}
	if len(names) != 24 {
		t.Fatalf("%d numbers: %v", len(names), names)
	}
	eachTarget(t, func(t *testing.T, cc abiTarget) {
		ours, theirs := cc.values(t, ourHeaders(t), names), cc.theirValues(t, names)
		for i, name := range names {
			if ours[i] != theirs[i] {
				t.Errorf("%s is %d, want %d", name, ours[i], theirs[i])
			}
		}
	})
}
