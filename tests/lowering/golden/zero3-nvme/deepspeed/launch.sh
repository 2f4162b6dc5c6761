#!/bin/sh
# Starts the run that this folder describes; further arguments go to the program.
set -eu
here=$(CDPATH="" cd -- "$(dirname -- "$(readlink -f -- "$0")")" && pwd)
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
MASTER_PORT="${MASTER_PORT:-}"
[ -n "$MASTER_PORT" ] || MASTER_PORT="$(python3 -c 'import random, socket; print(next(port for port in random.sample(range(20000, 32768), 100) if socket.socket().connect_ex(("127.0.0.1", port))))')"
exec deepspeed --num_gpus 8 --no_local_rank --master_port "$MASTER_PORT" --module gradwire.train "$here"/plan.json "$@"
