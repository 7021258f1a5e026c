#!/bin/sh
# Regenerates *.pb.go, or writes them below the directory $1. Needs protoc
# (Debian: protobuf-compiler); the two Go generators come from go.mod, so their
# versions are pinned. The file is named from the module's root: the name is
# registered in every process that links it.
set -eu
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin/" google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc
cd ../../..
out=${1:-.}
PATH="$bin:$PATH" protoc -I. --go_out="$out" --go_opt=paths=source_relative \
	--go-grpc_out="$out" --go-grpc_opt=paths=source_relative plugin/proto/v1/flowtally.proto
