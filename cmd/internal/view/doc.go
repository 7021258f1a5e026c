// Package view reads values of counters, and prints counters, flows, queue pairs and conditions: as tables for people
// and as JSON for programs. Fields of the JSON are only added.
package view
