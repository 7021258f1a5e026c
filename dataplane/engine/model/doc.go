// Package model holds the model test of the whole engine: see docs/testing.md. It has no code for other packages.
package model
