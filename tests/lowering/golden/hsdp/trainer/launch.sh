#!/bin/sh
# Starts the run that this folder describes; further arguments go to the program.
set -eu
here=$(CDPATH="" cd -- "$(dirname -- "$(readlink -f -- "$0")")" && pwd)
export ACCELERATE_USE_PARALLELISM_CONFIG=true
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
export PARALLELISM_CONFIG_DP_REPLICATE_SIZE=2
export PARALLELISM_CONFIG_DP_SHARD_SIZE=8
exec torchrun --standalone --nnodes 1 --nproc-per-node 16 -m gradwire.train "$here"/plan.json "$@"
