// Package ibvtest builds a software libibverbs.so.1, libmlx5.so.1 and libefa.so.1, for tests
// and demonstrations of what needs an RDMA NIC on machines that have none.
//
// The libraries are C, compiled by Build with gcc from the sources that are embedded
// here (src); no header of rdma-core is needed. They have the public ABI only: a
// program loads them by path in place of rdma-core's, and the distribution's own
// programs run over them (LD_LIBRARY_PATH). There are two builds of libibverbs: one with
// the symbols of rdma-core 65 (IBVERBS_1.18, completion counters) and one with those of
// rdma-core 44, without; and three of libmlx5: as rdma-core 65, 44 and 61.0, which differ in
// how they read the actions of a flow.
//
// # What the software NIC is
//
// A device is a netdev of the network namespace of the thread that calls
// ibv_get_device_list. Flows match the real packets of that netdev: a packet socket
// looks at them, so a packet counts as its wire segments, in bytes of layer 2
// without FCS (src/nic.h).
//
// It is strict. What a man page forbids fails, with the errno that is documented or that
// mlx5 and the kernel's uverbs answer: attaching to bound counters EBUSY, a flow without an attached
// point EINVAL, a short read EINVAL, a second COUNT EINVAL, a mask on a field that
// is not matched EOPNOTSUPP, a priority above 15 ENOMEM, a RAW_PACKET QP or a flow without
// CAP_NET_RAW EPERM, an object that is in use EBUSY. Also a context that still has objects: its
// ibv_close_device is -1 with EBUSY.
//
// # Queue pairs that move data
//
// RC, UC and UD queue pairs of one process reach one another by GID and QP number, over
// all contexts and devices: SEND, RDMA_WRITE, both with immediate data, RDMA_READ, inline,
// signaled or not. Work is done by the thread that posts it, so that a test can poll next; with
// a delay for "WQE" the library's own thread does it later. Strictly, as libmlx5 and libefa: a
// slot of a queue is free when its completion has been polled (ENOMEM before); errors
// complete at both ends with the statuses of the InfiniBand specification, flush what is
// behind them and send the events that they send; a receiver that is not ready or a
// peer that does not answer is waited for as long as rnr_retry, timeout and retry_cnt
// say; the PSNs of both ends must agree; a local key is not the remote one; a
// completion queue that overruns cannot be used again; what a failed completion leaves
// undefined is filled with 0x5a.
//
// Every completion queue is a ring of CQE64 as mlx5 writes them, with their owner bit,
// and the consumer index in a doorbell record, by which the device goes. mlx5dv_init_obj tells
// where it lies; ibv_poll_cq reads the same ring.
//
// Completion counters (in the newer build) count every work request that ends, signaled or not,
// flushed ones as errors; remote operations have no errors, and an RDMA_WRITE_WITH_IMM is
// counted at its target as a receive and as a remote write. They wrap past max_value.
// With efadv_create_comp_cntr the words are the caller's: the device keeps the value and
// writes the word at each update, none before the first.
//
// # What it is not
//
// A socket looks on and takes no packet from the kernel. So a plain NORMAL flow does
// not steal its packets here, and a flow with a DROP action counts what it matches and drops
// nothing; on a NIC they do. No packet reaches a QP, and no QP sends one: messages go
// from memory to memory, not through the netdev, and posting to a RAW_PACKET QP answers
// EOPNOTSUPP. There are no shared receive queues, atomics, memory windows or multicast.
// A device here has at once what no NIC of today has together: Env.Without takes away.
// Nothing here says what a NIC costs.
//
// Flows of the types ALL_DEFAULT, MC_DEFAULT and SNIFFER are accepted and count nothing,
// as on mlx5; reading a counters object that was bound to one answers EFAULT, where
// the kernel would call through a null pointer.
//
// # Faults
//
// Env has them all. Items of its lists may name a device ("swnic0/flows"). The
// library reads its environment at every ibv_get_device_list; a list that did not change
// goes on with the numbering of its calls. Every call of a verb is counted before anything
// else, whatever it answers, and so is every firmware command of libmlx5, by its
// PRM name: see Statistics.
//
// A device that Control takes away is gone as in the kernel: its contexts get
// IBV_EVENT_DEVICE_FATAL and answer EIO to every command for ever, those that destroy
// included; closing such a context releases its remaining objects. ibv_poll_cq and the reads of completion
// counters are no commands: as in libmlx5 and libefa they read memory, which keeps its last values. The device can
// be opened again when it has returned. A netdev that disappears takes its device with it in the same way,
// at the next read.
package ibvtest
