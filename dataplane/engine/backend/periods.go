package backend

import "time"

const (
	// DefaultCommandsPerSecond bounds the commands to devices, where the configuration names no bound.
	DefaultCommandsPerSecond = 10000
	// ReadPeriodMin is the least time between two reads of one slot of a device, whatever the poll period.
	ReadPeriodMin = time.Millisecond
	// ReturnPeriod is the time between two searches for a device that is lost.
	ReturnPeriod = 500 * time.Millisecond
	// CalmTicks is the number of multiples of ReturnPeriod between two searches while no device is lost.
	CalmTicks = 4
	// CloseBound is how long Close waits for devices.
	CloseBound = 10 * time.Second
	// EventPause is the time after which a failed wait for device events is repeated.
	EventPause = 10 * time.Second
)
