// Package fleet tests flowtally's exporter as a fleet uses it: several instances that count real packets, an exporter
// without privilege for each, and a real Prometheus that scrapes them. It runs the rules and the dashboard of configs.
package fleet
