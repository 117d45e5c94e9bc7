#!/usr/bin/env bash
# One run over the ranks that mpirun starts:
#   PROCESSES=8 mpi.sh RUN_DIRECTORY +experiment=lora_math model=qwen3_4b
# Set MPIRUN_OPTIONS for hosts and the like, as in MPIRUN_OPTIONS="--hostfile hosts".
set -euo pipefail

directory=$1
shift
# The options are several words.
# shellcheck disable=SC2086
mpirun -np "${PROCESSES:-2}" ${MPIRUN_OPTIONS:-} \
  agent-tunix train distributed=mpi training.resume=true "hydra.run.dir=$directory" "$@"
