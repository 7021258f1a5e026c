// Package model has the model test of the whole engine, and no code for other packages. docs/testing.md describes it.
package model
