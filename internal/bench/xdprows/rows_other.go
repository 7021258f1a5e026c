//go:build !linux

package xdprows

import (
	"context"
	"runtime"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/probe"
)

var openOne, openHot, openSpread, openSMP, openExtensions = unsupported, unsupported, unsupported, unsupported, unsupported

func openMaskedHot(int, int) opener            { return unsupported }
func openRanges() opener                       { return unsupported }
func openWorst(func() worstInput) opener       { return unsupported }
func openWorstChosen(func() worstInput) opener { return unsupported }
func openAlone(func() input) opener            { return unsupported }
func openLinear(func() input) opener           { return unsupported }
func openUpdate(int, int, int) opener          { return unsupported }
func openLoad(int, int) opener                 { return unsupported }
func openHand([]byte) opener                   { return unsupported }
func openLPM(int) opener                       { return unsupported }
func openMemberChange(int, int) opener         { return unsupported }
func openMemberLoad(int) opener                { return unsupported }
func openOther(int, int, []byte) opener        { return unsupported }

func openMaskedSpread(int, int, string, string) opener { return unsupported }

func openMembers(int, memberDraw, string) opener { return unsupported }

func aclRow(row bench.Row, _ func() input) bench.Row {
	row.Open = unsupported
	return row
}

func unsupported(context.Context, bench.Env) (*bench.Sides, error) {
	return nil, &probe.UnsupportedError{Feature: "eBPF", Reason: "this is " + runtime.GOOS + ", not Linux"}
}
