#!/bin/sh
# Starts the run that this folder describes; further arguments go to the program.
set -eu
here=$(CDPATH="" cd -- "$(dirname -- "$(readlink -f -- "$0")")" && pwd)
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
exec torchrun --standalone --nnodes 1 --nproc-per-node 2 -m gradwire.train "$here"/plan.json "$@"
