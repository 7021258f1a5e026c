// Package plugintest helps to test what runs or serves a [dataplane.Service]. [NewFake] makes an instance in memory,
// and [Conformance] holds any Service to the contract that the comments of dataplane.Service state.
//
//	func TestMineConforms(t *testing.T) {
//		plugintest.Conformance(t, func() dataplane.Service { return newMine(t) })
//	}
package plugintest
