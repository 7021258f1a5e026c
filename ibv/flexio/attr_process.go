package flexio

// maxNameLen is the SDK's FLEXIO_MAX_NAME_LEN, including the 0 at the end.
const maxNameLen = 256

// nameFits refuses a name too long for the SDK's buffer, or with a zero byte, which would end it in C.
func (c *checks) nameFits(field, s string) {
	for i := range len(s) {
		if s[i] == 0 {
			c.refuse(field, "has a byte of 0, where C ends it")
			return
		}
	}
	if len(s) >= maxNameLen {
		c.refuse(field, "%d bytes: at most %d", len(s), maxNameLen-1)
	}
}

// AffinityType is enum flexio_affinity_type.
type AffinityType uint8

// The kinds of affinity: where a thread of the DPA runs.
const (
	AffinityNone   AffinityType = 0 // anywhere
	AffinityStrict AffinityType = 1 // on one execution unit
	AffinityGroup  AffinityType = 2 // on any unit of a group
)

func (t AffinityType) String() string {
	return name(map[AffinityType]string{AffinityNone: "none", AffinityStrict: "strict", AffinityGroup: "group"}, "affinity type", t)
}

// Affinity is flexio_affinity: where a thread of the DPA runs.
type Affinity struct {
	Type AffinityType `ref:"type"`
	ID   uint32       `ref:"id"` // number of the unit or group; 0 for type none
}

// Validate reports every attribute that is wrong.
func (a *Affinity) Validate() error {
	c := checks{of: "flexio_affinity"}
	a.check(&c)
	return c.err()
}

func (a *Affinity) check(c *checks) {
	c.known("type", a.Type, a.Type <= AffinityGroup)
	if a.Type == AffinityNone && a.ID != 0 {
		c.refuse("id", "is reserved for type none")
	}
}

// AppAttr is flexio_app_attr. The SDK uses it to make an application. Programs use [AppSelectAttr] instead.
type AppAttr struct {
	AppName                  string   `ref:"app_name"`
	AppPtr                   []byte   `ref:"app_ptr"` // the application, an ELF file
	AppBsize                 uint64   `ref:"app_bsize"`
	SigPtr                   []byte   `ref:"sig_ptr"`
	SigBsize                 uint64   `ref:"sig_bsize"` // bytes; 0 is no signature
	DPAAPIVersion            uint64   `ref:"dpa_api_version"`
	FlexioDevVersions        []uint64 `ref:"flexio_dev_versions"`
	FlexioDevVersionsLenSize uint64   `ref:"flexio_dev_versions_len_size"` // elements
}

// Validate reports every attribute that is wrong.
func (a *AppAttr) Validate() error {
	c := checks{of: "flexio_app_attr"}
	if a.AppName == "" {
		c.refuse("app_name", "an application has a name")
	}
	c.nameFits("app_name", a.AppName)
	if len(a.AppPtr) == 0 {
		c.refuse("app_ptr", "no application")
	}
	if a.AppBsize != uint64(len(a.AppPtr)) {
		c.refuse("app_bsize", "%d, and app_ptr has %d bytes", a.AppBsize, len(a.AppPtr))
	}
	if a.SigBsize != uint64(len(a.SigPtr)) {
		c.refuse("sig_bsize", "%d, and sig_ptr has %d bytes", a.SigBsize, len(a.SigPtr))
	}
	if a.FlexioDevVersionsLenSize != uint64(len(a.FlexioDevVersions)) {
		c.refuse("flexio_dev_versions_len_size", "%d, and flexio_dev_versions has %d", a.FlexioDevVersionsLenSize, len(a.FlexioDevVersions))
	}
	return c.err()
}

// HWModelID is enum flexio_hw_model_id. The reference gives no values.
type HWModelID uint32

// HWModelDefault is FLEXIO_HW_MODEL_DEF: the model of the device in AppSelectAttr.IBVCtx.
const HWModelDefault HWModelID = 0

// AppSelectAttr is flexio_app_select_attr. It selects an application of a program.
type AppSelectAttr struct {
	AppName   string    `ref:"app_name"`
	HWModelID HWModelID `ref:"hw_model_id"`
	IBVCtx    *Object   `ref:"ibv_ctx"` // the device, needed for the default model
}

// Validate reports every attribute that is wrong.
func (a *AppSelectAttr) Validate() error {
	c := checks{of: "flexio_app_select_attr"}
	if a.AppName == "" {
		c.refuse("app_name", "no name to match")
	}
	c.nameFits("app_name", a.AppName)
	if a.HWModelID == HWModelDefault && a.IBVCtx == nil {
		c.refuse("ibv_ctx", "required with the default hw_model_id, which is the device's")
	}
	return c.err()
}

// ProcessAttr is flexio_process_attr: the attributes of a new process on the DPA.
type ProcessAttr struct {
	Name  string  `ref:"name"`
	PD    *Object `ref:"pd"` // nil: one of its own
	EnPCC bool    `ref:"en_pcc"`
}

// Validate reports every attribute that is wrong.
func (a *ProcessAttr) Validate() error {
	c := checks{of: "flexio_process_attr"}
	c.nameFits("name", a.Name)
	return c.err()
}

// EventHandlerAttr is flexio_event_handler_attr: the attributes of a new event handler, which is a thread of the DPA.
type EventHandlerAttr struct {
	Name                    string   `ref:"name"`
	HostStubFunc            HostAddr `ref:"host_stub_func"` // represents the thread's function on the host
	Arg                     uint64   `ref:"arg"`
	Affinity                Affinity `ref:"affinity"`
	Continuable             bool     `ref:"continuable"`
	ThreadLocalStorageDAddr DPAAddr  `ref:"thread_local_storage_daddr"` // 0: none
}

// Validate reports every attribute that is wrong.
func (a *EventHandlerAttr) Validate() error {
	c := checks{of: "flexio_event_handler_attr"}
	c.nameFits("name", a.Name)
	if a.HostStubFunc == 0 {
		c.refuse("host_stub_func", "no function to run")
	}
	c.within("affinity", a.Affinity.check)
	return c.err()
}

// OutboxAttr is flexio_outbox_attr. All values are valid, so there is no Validate.
type OutboxAttr struct {
	EnPCC bool    `ref:"en_pcc"`
	UAR   *Object `ref:"uar"` // deprecated and ignored: the SDK uses the process's own
}

// CmdQState is enum flexio_cmdq_state.
type CmdQState uint8

// The initial states of a command queue.
const (
	CmdQPending CmdQState = 0
	CmdQRunning CmdQState = 1
)

func (s CmdQState) String() string {
	return name(map[CmdQState]string{CmdQPending: "pending", CmdQRunning: "running"}, "command queue state", s)
}

// CmdQAttr is flexio_cmdq_attr: the attributes of a new command queue (asynchronous RPC).
type CmdQAttr struct {
	Workers   int       `ref:"workers"`
	BatchSize int       `ref:"batch_size"` // tasks per invocation of a worker
	State     CmdQState `ref:"state"`
}

// Validate reports every attribute that is wrong.
func (a *CmdQAttr) Validate() error {
	c := checks{of: "flexio_cmdq_attr"}
	if a.Workers < 1 {
		c.refuse("workers", "%d: a queue without workers", a.Workers)
	}
	if a.BatchSize < 1 {
		c.refuse("batch_size", "%d: a worker would run no task", a.BatchSize)
	}
	c.known("state", a.State, a.State <= CmdQRunning)
	return c.err()
}
