package ibv

import "syscall"

// verbs is the part of libibverbs used by this package. Methods take plain values and return an errno, which is
// 0 on success. The only implementation is in cgo_linux.go. If the context's verbs_context lacks a verb, it
// returns EOPNOTSUPP. If the library lacks a symbol, it returns ENOSYS.
//
// Neither the implementation nor the library checks whether an object is open. Callers must keep it open by
// object.use.
type verbs interface {
	path() string
	has(symbol string) bool
	unload(stay bool) // with stay the library stays in memory

	devices() ([]Device, syscall.Errno)
	openDevice(name string) (ctx handle, asyncFD int, errno syscall.Errno) // ENODEV: not in the list
	closeDevice(ctx handle) syscall.Errno
	sysfsPath(ctx handle) string // see Device.SysfsPath
	queryDevice(ctx handle, a *DeviceAttr) syscall.Errno
	queryPort(ctx handle, port uint8, a *PortAttr) syscall.Errno
	queryGID(ctx handle, port uint8, index int, gid *GID) syscall.Errno
	queryCompCntrCaps(ctx handle) (CompCntrCaps, syscall.Errno)
	getEvent(ctx handle) (event, syscall.Errno) // EAGAIN: no event is ready
	ackEvent(e event)                           // until then the object named by e cannot be destroyed

	allocPD(ctx handle) (handle, syscall.Errno)
	deallocPD(pd handle) syscall.Errno

	regMR(pd handle, mem []byte, access AccessFlags) (region, syscall.Errno) // mem must stay mapped until deregMR
	deregMR(mr handle) syscall.Errno
	createAH(pd handle, a *AHAttr) (handle, syscall.Errno)
	destroyAH(ah handle) syscall.Errno

	createCQ(ctx handle, o CQOptions) (cq handle, cqe int, errno syscall.Errno)
	pollCQ(cq handle, dst []WC) (int, syscall.Errno)
	destroyCQ(cq handle) syscall.Errno

	createQP(pd, sendCQ, recvCQ handle, o *QPOptions) (qp handle, number uint32, errno syscall.Errno)
	modifyQP(qp handle, a *QPAttr, mask QPAttrMask) syscall.Errno
	queryQP(qp handle, mask QPAttrMask) (QPAttr, syscall.Errno)
	destroyQP(qp handle) syscall.Errno

	postSend(qp, ah handle, wrs []SendWR) (posted int, errno syscall.Errno) // at most postBatch; ah 0: no address handle
	postRecv(qp handle, wrs []RecvWR) (posted int, errno syscall.Errno)     // at most postBatch

	hasCompCntrs() bool
	createCompCntr(ctx handle, compMask uint32, typ CompCntrType, flags uint32) (handle, syscall.Errno)
	destroyCompCntr(cntr handle) syscall.Errno
	setCompCntr(cntr handle, word compCntrWord, value uint64) syscall.Errno
	incCompCntr(cntr handle, word compCntrWord, amount uint64) syscall.Errno
	readCompCntr(cntr handle, word compCntrWord) (uint64, syscall.Errno)
	attachCompCntr(qp, cntr handle, compMask uint32, ops CompCntrOps) syscall.Errno

	createFlow(qp handle, blob []byte) (handle, syscall.Errno)
	destroyFlow(flow handle) syscall.Errno

	createCounters(ctx handle, compMask uint32) (handle, syscall.Errno)
	attachCounters(counters handle, a CounterAttach, flow handle, compMask uint32) syscall.Errno
	readCounters(counters handle, dst []uint64, flags ReadFlags) syscall.Errno
	destroyCounters(counters handle) syscall.Errno
}

// event is struct ibv_async_event. Depending on the type, element is the address of a queue pair or completion
// queue, or the number of a port.
type event struct {
	typ     EventType
	element uint64
}

// region is the library's description of a memory region.
type region struct {
	mr         handle
	addr       uint64
	lkey, rkey uint32
}

// compCntrWord is one of the two values of a completion counter.
type compCntrWord uint8

const (
	wordComp compCntrWord = iota
	wordErr
)
