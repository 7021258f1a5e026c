package backend

import "time"

const (
	// DefaultCommandsPerSecond is the budget of commands for all devices, unless the configuration has another.
	DefaultCommandsPerSecond = 10000
	// ReadPeriodMin is the least time between two reads of a device's slot, however short the poll period.
	ReadPeriodMin = time.Millisecond
	// ReturnPeriod is the time between two searches for a lost device.
	ReturnPeriod = 500 * time.Millisecond
	// CalmTicks is the time between two searches while no device is lost, as a multiple of ReturnPeriod.
	CalmTicks = 4
	// CloseBound is how long Close waits for devices.
	CloseBound = 10 * time.Second
	// EventPause is the pause after a failed wait for device events.
	EventPause = 10 * time.Second
)
