#!/usr/bin/env bash
# One run on all hosts of a Cloud TPU slice:
#   TPU=my-slice ZONE=us-west4-a tpu_pod.sh RUN_DIRECTORY model=qwen3_8b +experiment=lora_math model.mesh_shape=[2,1,8]
# RUN_DIRECTORY must be on a file system that all hosts have mounted.
set -euo pipefail

directory=$1
shift
command=$(printf '%q ' agent-tunix train distributed=auto training.resume=true "hydra.run.dir=$directory" "$@")
gcloud compute tpus tpu-vm ssh "${TPU:?the name of the slice}" --zone="${ZONE:?its zone}" --worker=all \
  --command="source ~/agent_tunix/.venv/bin/activate && $command"
