// Package plugintest has helpers for tests with a [dataplane.Service]. [NewFake] returns an instance that exists only in
// memory. [Conformance] tests whether a Service keeps the contract in the comments of dataplane.Service.
//
//	func TestMineConforms(t *testing.T) {
//		plugintest.Conformance(t, func() dataplane.Service { return newMine(t) })
//	}
package plugintest
